#include "harness/os/exit_report.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/wait.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "harness/base/signal_name.h"
#include "harness/os/job.h"
#include "harness/os/poll_until.h"
#include "harness/os/proc.h"

namespace lockstep::os {
namespace {

// Debian 12's glibc knows it; older headers do not.
constexpr auto kPidfd = static_cast<idtype_t>(3);

// struct pidfd_info of linux/pidfd.h as of 6.15, whose header is newer than most systems'.
struct PidfdInfo {
  std::uint64_t mask{}, cgroup{};
  std::array<std::uint32_t, 11> ids{};
  std::int32_t exit_code{};
};
constexpr std::uint64_t kPidfdInfoExit = 1U << 3;
constexpr auto kPidfdGetInfo = _IOWR(0xFF, 11, PidfdInfo);

ExitReport decode_status(int status) {
  ExitReport report;
  if (WIFEXITED(status))
    report.exit_status = WEXITSTATUS(status);
  else if (WIFSIGNALED(status))
    report.signal = WTERMSIG(status);
  report.core_dumped = report.signal && WCOREDUMP(status);
  return report;
}

// Of a process that its own parent reaps. Before that its zombie tells, afterwards the kernel's
// record of it.
ExitReport told_by_kernel(const ProcessHandle& process) {
  if (const std::optional<std::int32_t> status = zombie_status(process.id()))
    return decode_status(*status);
  PidfdInfo info{.mask = kPidfdInfoExit};
  if (::ioctl(process.pidfd(), kPidfdGetInfo, &info) == 0 && (info.mask & kPidfdInfoExit) != 0)
    return decode_status(info.exit_code);
  return {};
}

}  // namespace

std::string ExitReport::to_string() const {
  if (exit_status)
    return fmt::format("exited {}", *exit_status);
  if (signal)
    return fmt::format("was killed by {}{}", signal_name(*signal),
                       core_dumped ? " (core dumped)" : "");
  return "ended, status unknown";
}

ExitReport decode(const siginfo_t& info) {
  ExitReport report;
  if (info.si_code == CLD_EXITED)
    report.exit_status = info.si_status;
  else if (info.si_code == CLD_KILLED || info.si_code == CLD_DUMPED)
    report.signal = info.si_status;
  report.core_dumped = info.si_code == CLD_DUMPED;
  return report;
}

Result<std::optional<ExitReport>> reap_if_ended(int pidfd) {
  siginfo_t info{};
  while (::waitid(kPidfd, static_cast<id_t>(pidfd), &info, WEXITED | WNOHANG | __WALL) != 0) {
    if (errno != EINTR) {
      return Error{Error::Kind::kEnvironment,
                   fmt::format("cannot wait for a process: {}", std::strerror(errno)), ""};
    }
  }
  if (info.si_pid == 0)
    return std::optional<ExitReport>();
  return std::optional<ExitReport>(decode(info));
}

Result<std::optional<ExitReport>> reap(int pidfd, std::chrono::steady_clock::time_point deadline) {
  poll_until(pidfd, POLLIN, deadline);
  return reap_if_ended(pidfd);
}

ExitReport report_of_ended(const ProcessHandle& process) {
  const Result<std::optional<ExitReport>> reaped = reap_if_ended(process.pidfd());
  return reaped && *reaped ? **reaped : told_by_kernel(process);
}

bool reap_pid_if_ended(pid_t pid) {
  siginfo_t info{};
  return ::waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOHANG | __WALL) == 0 &&
         info.si_pid != 0;
}

}  // namespace lockstep::os
