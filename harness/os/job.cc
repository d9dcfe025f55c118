#include "harness/os/job.h"

#include <fmt/format.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <map>
#include <set>
#include <thread>
#include <utility>

#include "harness/os/exit_report.h"
#include "harness/os/pidfd.h"
#include "harness/os/poll_until.h"

namespace lockstep::os {

using Clock = std::chrono::steady_clock;

Result<ProcessHandle> ProcessHandle::open(std::int32_t pid) {
  ProcessHandle handle;
  handle.pidfd_ = UniqueFd(pidfd_open(pid));
  if (!handle.pidfd_) {
    return Error{Error::Kind::kEnvironment,
                 fmt::format("cannot open process {}: {}", pid, std::strerror(errno)), ""};
  }
  std::optional<ProcessStat> stat = read_process(pid);
  const bool ended = handle.ended();
  if (ended)  // Before this read or after it.
    stat = read_process(pid);
  // The pid may have been freed and taken anew; then the pidfd's process has ended. A zombie still
  // holds its pid.
  if (!stat || (ended && !stat->zombie()))
    return Error{Error::Kind::kEnvironment, fmt::format("process {} has ended", pid), ""};
  handle.id_ = stat->id;
  return handle;
}

std::optional<ProcessHandle> ProcessHandle::open(const ProcessId& id) {
  Result<ProcessHandle> handle = open(id.pid);
  if (!handle || handle->id() != id)
    return std::nullopt;
  return std::move(*handle);
}

bool ProcessHandle::ended() const { return wait_ended(Clock::time_point::min()); }

bool ProcessHandle::wait_ended(Clock::time_point deadline) const {
  return poll_until(pidfd_.get(), POLLIN, std::max(deadline, Clock::now()));
}

bool ProcessHandle::signal(int number) const {
  const std::optional<ProcessStat> now = read_process(id_.pid);
  if (!pidfd_ || !now || now->id != id_)
    return false;
  if (::syscall(SYS_pidfd_send_signal, pidfd_.get(), number, nullptr, 0) != 0)
    return false;
  last_signal_ = number;
  return true;
}

bool ProcessHandle::forward(int number) const {
  siginfo_t info{};
  info.si_signo = number;
  info.si_code = SI_QUEUE;
  info.si_pid = ::getpid();
  info.si_uid = ::getuid();
  return pidfd_ && ::syscall(SYS_pidfd_send_signal, pidfd_.get(), number, &info, 0) == 0;
}

namespace {

// Nobody ends what it descends from.
std::set<std::int32_t> us_and_above(const std::vector<ProcessStat>& all) {
  std::map<std::int32_t, std::int32_t> parent_of;
  for (const ProcessStat& process : all)
    parent_of[process.id.pid] = process.parent;
  std::set<std::int32_t> chain;
  for (std::int32_t pid = ::getpid(); pid > 0 && chain.insert(pid).second;)
    pid = parent_of[pid];
  return chain;
}

}  // namespace

std::vector<ProcessStat> members_of(const Family& family) {
  const std::vector<ProcessStat> all = read_processes();
  std::set<std::int32_t> spared = us_and_above(all);
  for (const ProcessStat& process : all) {
    if (std::find(family.spared.begin(), family.spared.end(), process.id) == family.spared.end())
      continue;
    spared.insert(process.id.pid);
    for (const ProcessStat& below : descendants_of(process.id.pid, all))
      spared.insert(below.id.pid);
  }
  std::set<std::int32_t> ours;
  if (family.ancestor > 0) {
    for (const ProcessStat& process : descendants_of(family.ancestor, all))
      ours.insert(process.id.pid);
  }
  // Who was there before the ancestor was has no mark of its.
  std::uint64_t since = 0;
  for (const ProcessStat& process : all) {
    if (process.id.pid == family.ancestor)
      since = process.id.start_ticks;
  }
  for (const ProcessStat& process : all) {
    if (!family.marker.empty() && !ours.contains(process.id.pid) &&
        process.id.start_ticks >= since && has_environment_entry(process.id.pid, family.marker)) {
      ours.insert(process.id.pid);
      for (const ProcessStat& below : descendants_of(process.id.pid, all))
        ours.insert(below.id.pid);
    }
  }
  std::vector<ProcessStat> members;
  for (const ProcessStat& process : all) {
    const bool in_session = ours.contains(process.session) && !spared.contains(process.session);
    if ((ours.contains(process.id.pid) || in_session) && !spared.contains(process.id.pid))
      members.push_back(process);
  }
  return members;
}

namespace {

constexpr int kEmptyLooks = 12;
constexpr std::chrono::milliseconds kBetweenLooks{7};  // No multiple of another's period.

// One end_everything(): what was found, and the handles through which it is ended.
class Ending {
 public:
  Ending(const Family& family, const EndHooks& hooks) : family_(family), hooks_(hooks) {}

  std::vector<EndedProcess> run(Clock::time_point deadline) {
    // Only an empty look proves that nothing is left: a process that forks and exits while we look
    // leaves at least its zombie, and nobody but us reaps that. Of a family that others reap, one
    // that does so may have been missed: many empty looks prove it.
    const int enough = family_.ancestor == ::getpid() ? 1 : kEmptyLooks;
    for (int empty_looks = 0;;) {
      const Round round = look();
      empty_looks = round.empty ? empty_looks + 1 : 0;
      if (empty_looks >= enough || Clock::now() >= deadline)
        break;
      if (round.empty)
        std::this_thread::sleep_for(kBetweenLooks);
      if (round.empty || round.something_new)
        continue;
      for (const auto& [id, handle] : handles_)
        handle.signal(SIGKILL);
      for (const auto& [id, handle] : handles_) {
        if (!handle.wait_ended(deadline))
          break;
      }
    }
    std::vector<EndedProcess> ended;
    for (auto& [id, process] : found_)
      ended.push_back(std::move(process));
    return ended;
  }

 private:
  struct Round {
    bool empty{true};
    bool something_new{};
  };

  Round look() {
    Round round;
    for (auto& [id, process] : found_)
      process.gone = true;
    stop_children();
    for (const ProcessStat& member : members_of(family_)) {
      round.empty = false;
      find(member).gone = member.zombie();
      if (!member.zombie())
        stop(member);
      else if (member.parent == ::getpid())
        // One of somebody else's becomes ours to reap once that somebody is gone, which it will be.
        reap(member);
    }
    const std::vector<ProcessStat> stopped = std::exchange(stopped_, {});
    round.something_new = !stopped.empty();
    for (const ProcessStat& process : stopped) {
      if (hooks_.before_kill)
        hooks_.before_kill(process);
    }
    return round;
  }

  // Who forks and exits again and again is a child of ours from the exit of its parent on, and is
  // stopped here before it forks: a look at all processes may take longer than it lives.
  void stop_children() {
    if (family_.ancestor != ::getpid())
      return;
    const std::vector<std::int32_t> children = children_of_this_process();
    for (auto pid = children.rbegin(); pid != children.rend(); ++pid) {
      const std::optional<ProcessStat> child = read_process(*pid);
      if (child && !child->zombie() && child->parent == ::getpid() && !is_spared(child->id)) {
        find(*child);
        stop(*child);
      }
    }
  }

  [[nodiscard]] bool is_spared(const ProcessId& id) const {
    return std::find(family_.spared.begin(), family_.spared.end(), id) != family_.spared.end();
  }

  EndedProcess& find(const ProcessStat& process) {
    return found_
        .try_emplace(process.id, EndedProcess{process.id, process.name, process.state, true})
        .first->second;
  }

  void stop(const ProcessStat& process) {
    if (handles_.contains(process.id))
      return;
    std::optional<ProcessHandle> handle = ProcessHandle::open(process.id);
    if (!handle)
      return;
    handle->signal(SIGSTOP);
    handles_.emplace(process.id, std::move(*handle));
    stopped_.push_back(process);
  }

  void reap(const ProcessStat& zombie) const {
    if (hooks_.reap)
      hooks_.reap(zombie);
    else
      reap_pid_if_ended(zombie.id.pid);
  }

  const Family& family_;
  const EndHooks& hooks_;
  std::map<ProcessId, EndedProcess> found_{};
  std::map<ProcessId, ProcessHandle> handles_{};
  std::vector<ProcessStat> stopped_{};  // In this look.
};

}  // namespace

std::vector<EndedProcess> end_everything(const Family& family, Clock::time_point deadline,
                                         const EndHooks& hooks) {
  return Ending(family, hooks).run(deadline);
}

}  // namespace lockstep::os
