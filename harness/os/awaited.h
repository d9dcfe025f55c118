// What a thread waits for in the kernel: threads of its own process, or another process.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace lockstep::os {

/// The child that its main thread waits for in wait4(2) or waitid(2); -1: any; none where it does
/// not wait for one, or it is not told.
std::optional<std::int32_t> waits_for_child(std::int32_t pid);

/// A wait in futex(2) that only threads of the process can end: for a lock or a queue of its own.
struct OwnWait {
  bool for_ever{};  ///< Without a limit.
  std::optional<std::uint64_t>
      until_ns{};  ///< With one: when it ends, CLOCK_MONOTONIC; none if not told.
};

/// That of a thread; none where it is in none, or it is not told.
std::optional<OwnWait> waits_for_own_threads(std::int32_t pid, std::int32_t tid);

/// Those of `others` that have the file lock (flock(2), fcntl(2)) that its main thread waits for,
/// or the other end of the pipe or socket that it reads from, writes to or polls. Empty also where
/// that is not told.
std::vector<std::int32_t> holders_of_what_it_waits_for(std::int32_t pid,
                                                       const std::vector<std::int32_t>& others);

}  // namespace lockstep::os
