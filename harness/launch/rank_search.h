// Who of a job is a rank: told by a history with a default group, or by the environment.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "harness/base/unique_fd.h"
#include "harness/history/follower.h"
#include "harness/launch/family_watch.h"
#include "harness/launch/tracked_processes.h"
#include "harness/os/proc.h"

namespace lockstep::launch {

class RankSearch {
 public:
  using Clock = std::chrono::steady_clock;

  /// `ranks_are_ours`: started by us, so no environment is asked.
  RankSearch(history::Follower& follower, const std::string& history_directory, bool ranks_are_ours,
             FamilyWatch& family, TrackedProcesses& processes);

  /// When to look next.
  [[nodiscard]] Clock::time_point due() const;
  /// Readable when a process has begun a history, which may not live for long: hear() makes the
  /// next look be due then.
  [[nodiscard]] int fd() const { return begun_.get(); }
  void hear();

  struct News {
    bool found{};     ///< A rank that was not known.
    bool happened{};  ///< Or else, while no group has formed: somebody is at work.
  };
  News look();
  /// Everything that the job started and that is there.
  const std::vector<os::ProcessStat>& look_at_family();
  /// While nobody lives that is in a group: who stands in init_process_group is a rank, too, and
  /// who failed before it came there. (Of `others_wait` only, as of RunJob: it may be started
  /// again.)
  void look_who_joins(bool others_wait);
  /// Of those that live, as their histories show; a command may do one job after another.
  [[nodiscard]] std::vector<Watched> in_a_group() const;
  /// As last read.
  [[nodiscard]] const std::vector<os::ProcessStat>& family() const { return family_.last(); }
  /// The job is over, or about to be ended: who else is a rank. Those of whom nobody saw more than
  /// that they had been told so are given back, and are written down.
  std::vector<Gone> settle();
  /// Of the largest default group that was seen.
  [[nodiscard]] std::int32_t world_size() const { return world_size_; }

 private:
  bool look_at_environments(const std::vector<os::ProcessStat>& family);
  bool look_at_histories();
  [[nodiscard]] bool raised(std::int32_t pid) const;
  /// At what the shim of each rank tells when it begins (harness/tap/shim_rank.c).
  std::vector<Gone> look_at_who_is_told();

  history::Follower& follower_;
  std::string history_directory_;
  FamilyWatch& family_;
  TrackedProcesses& processes_;
  bool ranks_are_ours_;
  UniqueFd begun_{};  // -1: we are not told; all is found by looking from time to time.
  std::map<os::ProcessId, int> looks_{};
  std::set<std::string> told_{};  // Files that were read.
  std::int32_t world_size_{};
  Clock::time_point next_look_{}, next_look_at_histories_{Clock::time_point::max()};
  Clock::time_point last_begun_{};
};

}  // namespace lockstep::launch
