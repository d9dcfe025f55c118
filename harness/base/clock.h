// Clocks, in the unit of the history.
#pragma once

#include <cstdint>
#include <ctime>

namespace lockstep {

inline std::uint64_t ns_of_clock(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000U +
         static_cast<std::uint64_t>(now.tv_nsec);
}

/// Nanoseconds of CLOCK_MONOTONIC.
inline std::uint64_t now_ns() { return ns_of_clock(CLOCK_MONOTONIC); }

/// Of a processor, that this thread took.
inline std::uint64_t thread_cpu_ns() { return ns_of_clock(CLOCK_THREAD_CPUTIME_ID); }

}  // namespace lockstep
