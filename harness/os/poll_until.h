// poll(2) with a deadline instead of a timeout, going on after signals.
#pragma once

#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <span>

namespace lockstep::os {

/// Milliseconds until `deadline` as poll(2) takes them: rounded up, at least 0, never "for ever".
inline int poll_timeout_ms(std::chrono::steady_clock::time_point deadline) {
  const auto left = deadline - std::chrono::steady_clock::now();
  const auto left_ms = std::chrono::ceil<std::chrono::milliseconds>(left).count();
  return static_cast<int>(std::clamp<std::int64_t>(left_ms, 0, 3'600'000));
}

/// Whether `fd` became ready for `events` (or broke) before the deadline.
inline bool poll_until(int fd, short events, std::chrono::steady_clock::time_point deadline) {
  pollfd entry{.fd = fd, .events = events, .revents = 0};
  while (true) {
    const int ready = ::poll(&entry, 1, poll_timeout_ms(deadline));
    if (ready > 0)
      return true;
    if ((ready < 0 && errno != EINTR) || std::chrono::steady_clock::now() >= deadline)
      return false;
  }
}

}  // namespace lockstep::os
