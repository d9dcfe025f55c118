#include "harness/os/thread_snapshot.h"

#include <fmt/format.h>
#include <sys/ptrace.h>
#include <sys/user.h>
#include <sys/wait.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <fstream>
#include <optional>

#include "harness/os/exit_report.h"
#include "harness/os/proc.h"
#include "harness/os/process_memory.h"

namespace lockstep::os {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::size_t kStackBytesMax = std::size_t{1} << 20;

Error ptrace_refused(std::int32_t pid, int error) {
  if (error == ESRCH)
    return {Error::Kind::kEnvironment, fmt::format("cannot look at process {}: it has ended", pid),
            ""};
  std::ifstream scope_file("/proc/sys/kernel/yama/ptrace_scope");
  int scope = 0;
  if (scope_file >> scope; scope > 1) {
    return {Error::Kind::kEnvironment,
            fmt::format("cannot attach to {}: ptrace_scope is {}, need 1 or 0", pid, scope),
            "sysctl kernel.yama.ptrace_scope=1"};
  }
  return {Error::Kind::kEnvironment,
          fmt::format("cannot attach to {}: {}", pid, std::strerror(error)),
          "in a container add --cap-add=SYS_PTRACE"};
}

// A ptrace stop of `tid`, without ever reaping: an exit status belongs to whoever reaps the
// process.
std::optional<int> stop_status(std::int32_t tid) {
  siginfo_t info{};
  if (::waitid(P_PID, static_cast<id_t>(tid), &info, WSTOPPED | WNOHANG | __WALL) != 0 ||
      info.si_pid == 0)
    return std::nullopt;
  return info.si_status;
}

// Whether a thread that we trace has ended. It is then reaped: unless its tracer does that, it
// stays a zombie, and so does its process, for ever. Only the first thread of a child of ours is
// left to whoever waits for our children.
bool ended_and_reaped(const ThreadCopier::Seized& thread) {
  siginfo_t info{};
  if (::waitid(P_PID, static_cast<id_t>(thread.tid), &info, WEXITED | WNOHANG | WNOWAIT | __WALL) !=
      0)
    return true;  // Nobody has it any more.
  // A stop of a traced thread is told whatever was asked for.
  if (info.si_pid == 0 || info.si_code == CLD_TRAPPED || info.si_code == CLD_STOPPED)
    return false;
  const std::optional<ProcessStat> process = read_process(thread.pid);
  if (thread.tid != thread.pid || (process && process->parent != ::getpid()))
    reap_pid_if_ended(thread.tid);
  return true;
}

enum class Seen : std::uint8_t { kStopped, kEnded, kNeither };

Seen wait_for_stop(const ThreadCopier::Seized& thread, Clock::time_point deadline, int& status) {
  while (true) {
    if (const std::optional<int> stopped = stop_status(thread.tid)) {
      status = *stopped;
      return Seen::kStopped;
    }
    if (ended_and_reaped(thread))
      return Seen::kEnded;
    if (Clock::now() >= deadline)
      return Seen::kNeither;
    // A stop takes microseconds and announces itself only by SIGCHLD, which others may own.
    const timespec pause{.tv_sec = 0, .tv_nsec = 50'000};
    ::nanosleep(&pause, nullptr);
  }
}

// The rest of the mapping above the stack pointer.
std::uint64_t end_of_mapping(std::int32_t pid, std::uint64_t address) {
  std::ifstream maps(fmt::format("/proc/{}/maps", pid));
  for (std::string line; std::getline(maps, line);) {
    char* rest = nullptr;
    const std::uint64_t begin = std::strtoull(line.c_str(), &rest, 16);
    const std::uint64_t end = std::strtoull(rest + 1, nullptr, 16);
    if (begin <= address && address < end)
      return end;
  }
  return address;
}

#if defined(__x86_64__)
bool read_registers(std::int32_t tid, ThreadSnapshot& snapshot) {
  user_regs_struct r{};
  if (::ptrace(PTRACE_GETREGS, tid, nullptr, &r) != 0)
    return false;
  snapshot.registers = {r.rax, r.rdx, r.rcx, r.rbx, r.rsi, r.rdi, r.rbp, r.rsp, r.r8,
                        r.r9,  r.r10, r.r11, r.r12, r.r13, r.r14, r.r15, r.rip};
  snapshot.stack_begin = r.rsp;
  return true;
}
#else
#error "the register order of this processor is not known here"
#endif

void read_stack(ThreadSnapshot& snapshot) {
  const std::uint64_t end = end_of_mapping(snapshot.pid, snapshot.stack_begin);
  snapshot.stack.resize(std::min<std::uint64_t>(end - snapshot.stack_begin, kStackBytesMax));
  const ssize_t got =
      read_some(snapshot.pid, snapshot.stack_begin, snapshot.stack.data(), snapshot.stack.size());
  snapshot.stack.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
}

// A stop for a signal must hand the signal on; the stop we asked for has none. False: the thread
// was killed while it was stopped, cannot be detached, and has not got as far as to be reaped.
bool detach(const ThreadCopier::Seized& thread, int status) {
  const int event = status >> 8;
  const long signal = event == 0 ? status & 0x7f : 0;
  return ::ptrace(PTRACE_DETACH, thread.tid, nullptr, reinterpret_cast<void*>(signal)) == 0 ||
         ended_and_reaped(thread);
}

}  // namespace

ThreadCopier::~ThreadCopier() { release(); }

void ThreadCopier::release() {
  std::erase_if(unreleased_, [](const Seized& thread) {
    const std::optional<int> status = stop_status(thread.tid);
    return status ? detach(thread, *status) : ended_and_reaped(thread);
  });
}

Result<ThreadSnapshot> ThreadCopier::copy(std::int32_t pid, std::int32_t tid,
                                          Clock::time_point deadline) {
  release();
  if (::ptrace(PTRACE_SEIZE, tid, nullptr, nullptr) != 0)
    return ptrace_refused(pid, errno);
  const Seized thread{pid, tid};
  int status = 0;
  // Refused only where it is about to end.
  (void)::ptrace(PTRACE_INTERRUPT, tid, nullptr, nullptr);
  const Seen seen = wait_for_stop(thread, deadline, status);
  if (seen == Seen::kEnded)
    return ptrace_refused(pid, ESRCH);
  if (seen == Seen::kNeither) {
    unreleased_.push_back(thread);
    return Error{Error::Kind::kTimeout,
                 fmt::format("thread {} of process {} did not stop to be looked at", tid, pid), ""};
  }
  ThreadSnapshot snapshot;
  snapshot.pid = pid;
  const bool read = read_registers(tid, snapshot);
  if (read)
    read_stack(snapshot);
  if (!detach(thread, status))
    unreleased_.push_back(thread);
  if (!read)
    return ptrace_refused(pid, ESRCH);
  return snapshot;
}

}  // namespace lockstep::os
