// What the main thread of a process waits for in the kernel, where that is of another process.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace lockstep::os {

/// The child that it waits for in wait4(2) or waitid(2); -1: any; none where it does not wait for
/// one, or it is not told.
std::optional<std::int32_t> waits_for_child(std::int32_t pid);

/// It waits in a futex(2) that only threads of its own can wake: a lock or a queue of the process.
/// False also where that is not told.
bool waits_for_own_threads(std::int32_t pid);

/// Those of `others` that have the file lock (flock(2), fcntl(2)) that it waits for, or the other
/// end of the pipe or socket that it reads from, writes to or polls. Empty also where that is not
/// told.
std::vector<std::int32_t> holders_of_what_it_waits_for(std::int32_t pid,
                                                       const std::vector<std::int32_t>& others);

}  // namespace lockstep::os
