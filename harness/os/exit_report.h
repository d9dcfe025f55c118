// How a process ended. The only place that decodes wait statuses.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <csignal>
#include <cstdint>
#include <optional>
#include <string>

#include "harness/base/error.h"

namespace lockstep::os {

class ProcessHandle;

/// Exited with a status, or was killed by a signal; neither: not known (somebody else reaped it).
struct ExitReport {
  std::optional<std::int32_t> exit_status{};
  std::optional<std::int32_t> signal{};
  bool core_dumped{};

  [[nodiscard]] bool succeeded() const { return exit_status == 0; }
  /// "exited 3", "was killed by SIGKILL", "was killed by SIGSEGV (core dumped)", "ended, status
  /// unknown".
  [[nodiscard]] std::string to_string() const;
  friend bool operator==(const ExitReport&, const ExitReport&) = default;
};

/// From what waitid(2) filled in.
ExitReport decode(const siginfo_t& info);

/// Reaps a child if it has ended. No value: it lives. Errors: kEnvironment, not a child of ours.
Result<std::optional<ExitReport>> reap_if_ended(int pidfd);

/// Waits for a child by pidfd and reaps it. No value: it still lived at the deadline.
Result<std::optional<ExitReport>> reap(int pidfd, std::chrono::steady_clock::time_point deadline);

/// How a process that has ended did: a child is reaped; of anybody else's it is what the kernel
/// still tells through the pidfd (Linux 6.15) or its zombie, which may be nothing.
ExitReport report_of_ended(const ProcessHandle& process);

/// Reaps this child if it has ended; for the adopted children of a subreaper, which nobody else
/// waits for.
bool reap_pid_if_ended(pid_t pid);

}  // namespace lockstep::os
