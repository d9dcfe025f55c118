// What a process keeps that others can trip over: shared memory, temporary directories and lock
// files by their names, and what it has open.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "harness/base/error.h"

namespace lockstep::os {

/// Something with a path, of a kind that is of no use to anybody after its job. (Other files may be
/// data that somebody put there to stay.)
struct NamedObject {
  enum class Kind : std::uint8_t {
    kSegment,    ///< Or semaphore, in /dev/shm: of Python, PyTorch and NCCL.
    kDirectory,  ///< For the sockets of multiprocessing or torch_shm_manager, for its time.
    kLock,       ///< Of an extension that torch.utils.cpp_extension compiles; others wait for it.
  };
  Kind kind{};
  std::string path{};
  std::uint64_t inode{};
  std::uint64_t bytes{};  ///< Of a segment.
  /// torch_PID_...: who made it.
  std::optional<std::int32_t> maker{};
  /// Only its own job can know its name, so it can be removed after it.
  bool private_name{};
  /// Descriptors that lead there, by their targets.
  std::vector<std::string> targets{};
};

/// Those of this user, by path.
std::vector<NamedObject> named_objects();

/// Those of them that this process has open, or mapped; of a directory, a socket in it.
std::vector<NamedObject> held(std::int32_t pid, const std::vector<NamedObject>& objects);

/// What each descriptor of a process leads to: "socket:[123]", paths.
std::vector<std::string> descriptor_targets(std::int32_t pid);

/// Those of the targets that are GPUs, each once: "/dev/nvidia0". Whoever computes on one has it
/// open for as long as it has memory of it.
std::vector<std::string> gpus_among(const std::vector<std::string>& targets);

/// What a process has open: how many, its soft limit, and of which kinds, most frequent first:
/// "socket", "pipe", "file in /dev/shm". None when it is gone or not permitted.
struct OpenDescriptors {
  std::uint64_t open{};
  std::uint64_t limit{};
  std::vector<std::pair<std::string, std::uint64_t>> kinds{};
  /// Files by path, devices and shared memory apart, and how often each is open; not all of many.
  std::vector<std::pair<std::string, std::uint64_t>> files{};
};
std::optional<OpenDescriptors> open_descriptors_of(std::int32_t pid);
/// The number alone, which costs a system call (Linux 6.2; before it the same as above).
std::optional<std::uint64_t> count_descriptors(std::int32_t pid);

/// What it has read from files and pipes so far, in bytes, and once more what of it, or of files
/// that it has mapped, came from a disk; 0 where that is not told. (What comes by recv(2) is not
/// counted.)
std::uint64_t bytes_read_by(std::int32_t pid);

/// Its command line, arguments separated by blanks; its name in brackets where it has none.
std::string command_line(std::int32_t pid);

}  // namespace lockstep::os
