// Registers and stack of one thread of another process, copied while it is stopped for an instant.
#pragma once

#include <chrono>
#include <cstdint>
#include <vector>

#include "harness/base/error.h"

namespace lockstep::os {

struct ThreadSnapshot {
  std::int32_t pid{};
  std::vector<std::uint64_t> registers{};  ///< In DWARF order, the program counter last.
  std::uint64_t stack_begin{};             ///< Address of stack[0].
  std::vector<std::uint8_t> stack{};
};

/// Stops threads with PTRACE_SEIZE and PTRACE_INTERRUPT: no signal is sent, and whatever happens to
/// us the kernel detaches and the thread goes on.
class ThreadCopier {
 public:
  struct Seized {
    std::int32_t pid{}, tid{};
  };
  ~ThreadCopier();

  /// Errors: kEnvironment (not permitted, gone), kTimeout (it did not stop in time; it is let go as
  /// soon as it does).
  Result<ThreadSnapshot> copy(std::int32_t pid, std::int32_t tid,
                              std::chrono::steady_clock::time_point deadline);
  /// Lets go of those that stopped or ended after their time was up. To be called now and then: a
  /// process cannot be reaped while one of its threads, ended, is held here.
  void release();

 private:
  std::vector<Seized> unreleased_{};
};

}  // namespace lockstep::os
