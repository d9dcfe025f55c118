// The host's monotonic clock, in the unit of the history.
#pragma once

#include <cstdint>
#include <ctime>

namespace lockstep {

/// Nanoseconds of CLOCK_MONOTONIC.
inline std::uint64_t now_ns() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000U +
         static_cast<std::uint64_t>(now.tv_nsec);
}

}  // namespace lockstep
