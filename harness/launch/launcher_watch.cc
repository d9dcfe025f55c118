#include "harness/launch/launcher_watch.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <sstream>
#include <utility>

#include "harness/base/clock.h"
#include "harness/base/signal_name.h"
#include "harness/os/exit_report.h"
#include "harness/os/kernel_objects.h"

namespace lockstep::launch {
namespace {

constexpr std::size_t kAboveMax = 16;
constexpr std::size_t kLaunchersMax = 32;  // Each takes a descriptor of ours.

bool is_interpreter(const std::string& name) {
  return name.rfind("python", 0) == 0 || name.rfind("pt_main", 0) == 0;
}

/// "torchrun"; of a Python its program, "torch.distributed.run" or "launch.py".
std::string name_of(const os::ProcessStat& process) {
  if (!is_interpreter(process.name))
    return process.name;
  std::istringstream words(os::command_line(process.id.pid));
  std::string word;
  words >> word;
  while (words >> word) {
    if (word == "-m" && words >> word)
      return word;
    if (word.front() != '-')
      return word.substr(word.rfind('/') + 1);
    if (word == "-c")
      break;
  }
  return process.name;
}

const Tracked* find(const TrackedProcesses& processes, const os::ProcessId& id) {
  for (const Tracked& process : processes.each()) {
    if (process.process.id() == id)
      return &process;
  }
  return nullptr;
}

/// The signal that killed it. (The end of one that is tracked is not ours to take.)
std::optional<std::int32_t> killed_by(const os::ProcessHandle& process,
                                      const TrackedProcesses& processes) {
  const Tracked* const tracked = find(processes, process.id());
  if (tracked != nullptr)
    return tracked->ended && !tracked->signalled ? tracked->ended->signal : std::nullopt;
  return os::report_of_ended(process).signal;
}

}  // namespace

void LauncherWatch::add_those_above(const Tracked& rank,
                                    const std::map<std::int32_t, os::ProcessStat>& by_pid,
                                    const TrackedProcesses& processes) {
  auto at = by_pid.find(rank.process.pid());
  for (std::size_t step = 0; at != by_pid.end() && step < kAboveMax; ++step) {
    at = by_pid.find(at->second.parent);
    if (at == by_pid.end())
      return;
    const os::ProcessStat& above = at->second;
    const Tracked* const tracked = find(processes, above.id);
    if (tracked != nullptr &&
        tracked->role == Role::kRank)  // A wrapper, or a rank that starts one.
      continue;
    auto known = launchers_.find(above.id);
    if (known == launchers_.end()) {
      std::optional<os::ProcessHandle> handle = os::ProcessHandle::open(above.id);
      if (!handle || above.zombie() || launchers_.size() >= kLaunchersMax)
        continue;
      known =
          launchers_.emplace(above.id, Launcher{std::move(*handle), name_of(above), now_ns(), {}})
              .first;
    }
    known->second.started.insert(rank.process.pid());
  }
}

std::string LauncherWatch::told_of(const LauncherEnd& end, const TrackedProcesses& processes) {
  RankSet living;
  for (const Tracked& process : processes.each()) {
    const bool its = std::count(end.pids.begin(), end.pids.end(), process.process.pid()) > 0;
    if (its && process.rank && process.lives())
      living.insert(*process.rank);
  }
  const bool one = living.size() == 1;
  return living.empty()
             ? ""
             : fmt::format("{} (pid {}) was killed by {}, and {} {}, which it started, {} on",
                           end.name, end.pid, signal_name(end.signal), one ? "rank" : "ranks",
                           living.to_string(), one ? "goes" : "go");
}

std::vector<LauncherEnd> LauncherWatch::look(const std::vector<os::ProcessStat>& family,
                                             const TrackedProcesses& processes) {
  std::map<std::int32_t, os::ProcessStat> by_pid;
  for (const os::ProcessStat& process : family)
    by_pid.emplace(process.id.pid, process);
  for (const Tracked& process : processes.each()) {
    if (process.rank && process.lives())
      add_those_above(process, by_pid, processes);
  }
  std::vector<LauncherEnd> ended;
  for (auto at = launchers_.begin(); at != launchers_.end();) {
    Launcher& launcher = at->second;
    const Tracked* const tracked = find(processes, at->first);
    if (!(tracked != nullptr ? !tracked->lives() : launcher.process.ended())) {
      launcher.lived_ns = now_ns();
      ++at;
      continue;
    }
    // What ranks did since then may be due to it.
    LauncherEnd end{.at_ns = launcher.lived_ns, .pid = at->first.pid, .name = launcher.name};
    for (const Tracked& process : processes.each()) {
      const std::int32_t pid = process.process.pid();
      if (process.rank && process.lives() && !process.process.ended() &&
          launcher.started.contains(pid)) {
        end.pids.push_back(pid);
        end.ranks.insert(*process.rank);
      }
    }
    const std::optional<std::int32_t> signal = killed_by(launcher.process, processes);
    if (signal && !end.pids.empty()) {
      end.signal = *signal;
      orphans_.insert(end.pids.begin(), end.pids.end());
      ended.push_back(std::move(end));
    }
    at = launchers_.erase(at);
  }
  return ended;
}

}  // namespace lockstep::launch
