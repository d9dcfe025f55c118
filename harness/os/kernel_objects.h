// What a process keeps in the kernel that others can trip over: shared memory with a name, and what
// it has open.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "harness/base/error.h"

namespace lockstep::os {

/// A segment or semaphore in /dev/shm of a kind that Python, PyTorch and NCCL make and that is of
/// no use to anybody after its job. (Other files there may be data that somebody put there to
/// stay.)
struct SharedObject {
  std::string path{};
  std::uint64_t inode{};
  std::uint64_t bytes{};
  /// torch_PID_...: who made it.
  std::optional<std::int32_t> maker{};
  /// Only its own job can know its name, so it can be removed after it.
  bool private_name{};
  friend bool operator==(const SharedObject&, const SharedObject&) = default;
};

/// Those of this user, by path.
std::vector<SharedObject> shared_objects();

/// Mapped or opened by this process.
bool holds(std::int32_t pid, const SharedObject& object);

/// What each descriptor of a process leads to: "socket:[123]", paths.
std::vector<std::string> descriptor_targets(std::int32_t pid);

/// What a process has open: how many, its soft limit, and of which kinds, most frequent first:
/// "socket", "pipe", "file in /dev/shm". None when it is gone or not permitted.
struct OpenDescriptors {
  std::uint64_t open{};
  std::uint64_t limit{};
  std::vector<std::pair<std::string, std::uint64_t>> kinds{};
};
std::optional<OpenDescriptors> open_descriptors_of(std::int32_t pid);
/// The number alone, which costs a system call (Linux 6.2; before it the same as above).
std::optional<std::uint64_t> count_descriptors(std::int32_t pid);

/// What it has read from files and pipes so far, in bytes; 0 where that is not told. (What comes
/// by recv(2) is not counted.)
std::uint64_t bytes_read_by(std::int32_t pid);

/// Its command line, arguments separated by blanks; its name in brackets where it has none.
std::string command_line(std::int32_t pid);

}  // namespace lockstep::os
