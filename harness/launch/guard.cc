#include "harness/launch/guard.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "harness/base/check.h"
#include "harness/history/run_files.h"
#include "harness/launch/interrupts.h"
#include "harness/launch/job_file.h"
#include "harness/os/exit_report.h"

namespace lockstep::launch {
namespace {

using Clock = std::chrono::steady_clock;
constexpr int kExitUndecided = 2;
constexpr int kExitEnvironment = 125;
constexpr int kExitOurBug = 134;
constexpr auto kEndLimit = std::chrono::milliseconds(2'500);

int complain(const std::string& what) {
  fmt::print(stderr, "lockstep: {}\n", what);
  return kExitEnvironment;
}

// The signals a guard must outlive: it is what cleans up.
sigset_t guarded_signals() {
  sigset_t set;
  ::sigemptyset(&set);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT})
    ::sigaddset(&set, signal);
  return set;
}

// What the terminal sends reaches the supervisor too; what was sent to us by kill(2) may have been
// meant for both.
void pass_on(const signalfd_siginfo& info, const os::ProcessHandle& supervisor) {
  const bool from_terminal = info.ssi_code == SI_KERNEL;
  const int signal = static_cast<int>(info.ssi_signo);
  if (!from_terminal && signal != SIGQUIT)
    supervisor.forward(signal);
}

void watch(const os::ProcessHandle& supervisor, int signal_fd) {
  std::array<pollfd, 2> entries{pollfd{.fd = supervisor.pidfd(), .events = POLLIN, .revents = 0},
                                pollfd{.fd = signal_fd, .events = POLLIN, .revents = 0}};
  while (true) {
    // No deadline: the guard's whole task is to wait for this.
    if (::poll(entries.data(), entries.size(), -1) < 0 && errno != EINTR)
      return;
    signalfd_siginfo info{};
    if ((entries[1].revents & POLLIN) != 0 && ::read(signal_fd, &info, sizeof info) == sizeof info)
      pass_on(info, supervisor);
    if (entries[0].revents != 0)
      return;
  }
}

bool is_crash(int signal) {
  return signal == SIGABRT || signal == SIGSEGV || signal == SIGBUS || signal == SIGFPE ||
         signal == SIGILL;
}

int status_after(const os::ExitReport& report, const std::string& run_directory) {
  if (report.exit_status)
    return *report.exit_status;
  const int signal = report.signal.value_or(0);
  const std::string look =
      run_directory.empty()
          ? ""
          : fmt::format("; `lockstep check {}` judges what was recorded", run_directory);
  if (is_crash(signal)) {
    fmt::print(stderr,
               "lockstep: the supervisor {}, which is a bug of lockstep; the job was ended{}\n",
               report.to_string(), look);
    return kExitOurBug;
  }
  fmt::print(stderr, "lockstep: the supervisor {}; the job was ended{}\n", report.to_string(),
             look);
  return kExitUndecided;
}

// Children we had before we started anything (a shell that exec'd us) are not ours to touch; what
// is reparented from them could not be told from our own, so then only the marker counts.
bool has_children() {
  siginfo_t info{};
  return ::waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0 || errno != ECHILD;
}

void end_job(const os::Family& family) {
  for (const os::EndedProcess& process : os::end_everything(family, Clock::now() + kEndLimit)) {
    if (!process.gone)
      fmt::print(stderr, "lockstep: process {} ({}) is in state {} and could not be ended\n",
                 process.id.pid, process.name, process.state);
  }
}

/// What was recorded for the run by processes that were ended together with their own guards, as
/// the cases of a suite are.
void take_back_of(const std::string& run_directory) {
  if (run_directory.empty())
    return;
  for (const history::DeadLive& live : history::dead_live_directories()) {
    if (!live.history.starts_with(run_directory + "/"))
      continue;
    if (auto taken = history::take_back(live); !taken)
      complain(taken.error().what);
  }
}

}  // namespace

bool proc_is_ours() {
  std::error_code error;
  return std::filesystem::read_symlink("/proc/self", error) == std::to_string(::getpid());
}

int run_guarded(const std::function<int(Supervisor&)>& body) {
  if (!proc_is_ours())
    return complain("/proc shows the processes of another pid namespace; mount one of this");
  const bool had_children = has_children();
  Result<std::shared_ptr<CleanupPage>> cleanup = CleanupPage::create();
  if (!cleanup)
    return complain(cleanup.error().what);
  if (::prctl(PR_SET_CHILD_SUBREAPER, 1) != 0)
    return complain(fmt::format("cannot become a subreaper: {}", std::strerror(errno)));
  const std::string job_id = os::unique_id();
  const pid_t guard = ::getpid();
  const sigset_t signals = guarded_signals();
  SignalsAtStart at_start;
  ::sigprocmask(SIG_BLOCK, &signals, &at_start.blocked);
  // Where it is ignored, no child could be waited for.
  at_start.child_ignored = ::signal(SIGCHLD, SIG_DFL) == SIG_IGN;
  std::fflush(nullptr);
  const pid_t child = ::fork();
  if (child < 0)
    return complain(fmt::format("cannot fork: {}", std::strerror(errno)));
  if (child == 0) {
    Result<std::unique_ptr<Supervisor>> supervisor = Supervisor::make(job_id, std::move(*cleanup));
    if (!supervisor)
      ::_exit(complain(supervisor.error().what));
    Result<os::ProcessHandle> our_guard = os::ProcessHandle::open(guard);
    if (!our_guard || ::getppid() != guard)
      ::_exit(complain("the guard was killed before the supervisor began"));
    (*supervisor)->guard_ = std::move(*our_guard);
    (*supervisor)->signals_at_start_ = at_start;
    take_interrupts((*supervisor)->interrupt_fd(), guard);
    ::sigprocmask(SIG_SETMASK, &at_start.blocked, nullptr);
    const int status = body(**supervisor);
    supervisor->reset();
    std::exit(status);
  }
  Result<os::ProcessHandle> supervisor = os::ProcessHandle::open(child);
  const UniqueFd signal_fd(::signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK));
  LS_CHECK(supervisor && signal_fd);
  watch(*supervisor, signal_fd.get());
  const UniqueFd held = hold_job_file((*cleanup)->run_directory());
  const auto report = os::reap(supervisor->pidfd(), Clock::now() + std::chrono::seconds(1));
  const std::string marker = std::string(kJobMarker) + "=" + job_id;
  end_job({.ancestor = had_children ? 0 : guard, .marker = marker, .spared = (*cleanup)->spared()});
  const std::string run_directory = (*cleanup)->run_directory();
  for (const std::string& problem : (*cleanup)->settle_all())
    complain(problem);
  take_back_of(run_directory);
  // The signals stay blocked: one that arrives now must not take the exit status away.
  return status_after(report && *report ? **report : os::ExitReport{}, run_directory);
}

}  // namespace lockstep::launch
