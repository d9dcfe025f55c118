// Whoever started ranks (torchrun, mpirun, a shell, a program of the user's) and is killed while
// they live: nobody waits for them any more.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "harness/history/run.h"
#include "harness/launch/tracked_processes.h"
#include "harness/os/job.h"
#include "harness/os/proc.h"

namespace lockstep::launch {

class LauncherWatch {
 public:
  /// A reading of all descendants. Those who are seen to have been killed by a signal since the
  /// last one, while ranks of theirs live. (How the child of another ended is told by the kernel as
  /// of Linux 6.15.)
  std::vector<LauncherEnd> look(const std::vector<os::ProcessStat>& family,
                                const TrackedProcesses& processes);
  /// "torchrun (pid 7) was killed by SIGUSR1, and ranks 0,1, which it started, go on"; empty if
  /// none of them lives any more.
  static std::string told_of(const LauncherEnd& end, const TrackedProcesses& processes);
  /// This process is a rank of one that was killed so.
  [[nodiscard]] bool is_orphan(std::int32_t pid) const { return orphans_.contains(pid); }

 private:
  struct Launcher {
    os::ProcessHandle process{};
    std::string name{};
    std::uint64_t lived_ns{};          // When it was last seen to live.
    std::set<std::int32_t> started{};  // Ranks, itself or by others.
  };
  void add_those_above(const Tracked& rank, const std::map<std::int32_t, os::ProcessStat>& by_pid,
                       const TrackedProcesses& processes);

  std::map<os::ProcessId, Launcher> launchers_{};  // That live.
  std::set<std::int32_t> orphans_{};
};

}  // namespace lockstep::launch
