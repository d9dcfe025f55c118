// The clock that the policy of `run` goes by. It is handed in, so that a test can turn it.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>

namespace lockstep::session {

using TimePoint = std::chrono::steady_clock::time_point;
using Duration = std::chrono::steady_clock::duration;
using Clock = std::function<TimePoint()>;

/// In the unit of the history: both are CLOCK_MONOTONIC.
inline std::uint64_t ns_of(TimePoint at) {
  return static_cast<std::uint64_t>(std::chrono::nanoseconds(at.time_since_epoch()).count());
}

}  // namespace lockstep::session
