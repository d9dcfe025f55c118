// The native frames of one thread of another process, read from outside with ptrace and libdwfl.
// The thread is stopped only while its registers and stack are copied (well under a millisecond);
// unwinding works on the copy. If we die at any instant the kernel lets the thread go on.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "harness/base/error.h"

namespace lockstep::os {

struct NativeFrame {
  std::string module{};    ///< Path of the mapped object; empty if the address is in none.
  std::uint64_t offset{};  ///< From the object's lowest address (dli_fbase of dladdr); callers:
                           ///< return address - 1.
  std::string function{};  ///< Demangled; empty where there is no symbol.
};

class StackSampler {
 public:
  StackSampler();
  ~StackSampler();
  StackSampler(const StackSampler&) = delete;
  StackSampler& operator=(const StackSampler&) = delete;

  /// Innermost frame first. Processes with the same mapped objects share what was read of them, so
  /// ranks forked from one warm parent cost the reading once. Errors: kEnvironment (not permitted:
  /// what must be granted; the thread is gone), kTimeout.
  Result<std::vector<NativeFrame>> sample(std::int32_t pid, std::int32_t tid,
                                          std::chrono::steady_clock::time_point deadline);
  /// As ThreadCopier::release().
  void release();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep::os
