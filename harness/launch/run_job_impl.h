// Inside of RunJob: the wait loop.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "harness/history/journal.h"
#include "harness/launch/family_watch.h"
#include "harness/launch/job_loop.h"
#include "harness/launch/last_words.h"
#include "harness/launch/launcher_watch.h"
#include "harness/launch/meeting_port.h"
#include "harness/launch/output.h"
#include "harness/launch/rank_search.h"
#include "harness/launch/run_job.h"
#include "harness/launch/stranger_watch.h"
#include "harness/launch/tracked_processes.h"

namespace lockstep::launch {

class RunJob::Impl {
 public:
  Impl(Supervisor& supervisor, RunJobOptions options)
      : supervisor_(supervisor),
        options_(std::move(options)),
        loop_(supervisor, options_),
        output_(options_.log_bytes_max),
        family_(options_.journal),
        processes_(options_.journal),
        search_(*options_.follower, history_directory(), options_.ranks > 0, family_, processes_),
        strangers_(options_.journal, [this] { return os::members_of(supervisor_.family()); }) {}

  Result<void> start();
  RunEvent wait(Clock::time_point deadline);
  EndReport end(const std::string& reason);
  EndReport clear();
  std::vector<os::ProcessStat> spare(std::vector<os::ProcessStat>& spared);
  void sample(bool before_the_end) {
    search_.look_who_joins(search_.in_a_group().empty() && others_wait());
    strangers_.look(processes_.living(/*with_command=*/false), search_.family());
    loop_.prober().look(processes_.living(/*with_command=*/true), before_the_end);
  }
  void look_again() { loop_.prober().look_again(processes_.living(/*with_command=*/true)); }
  [[nodiscard]] std::vector<const JobProcess*> processes() const;
  [[nodiscard]] std::int32_t world_size() const {
    return std::max(options_.ranks, search_.world_size());
  }
  [[nodiscard]] Clock::time_point last_move() const { return loop_.prober().last_move(); }
  [[nodiscard]] bool share_a_rank() const { return processes_.share_a_rank(); }
  [[nodiscard]] bool lost_a_child() const;
  [[nodiscard]] bool others_wait() const;
  [[nodiscard]] bool ended() const { return ended_; }

 private:
  Result<void> start_rank(std::int32_t rank);
  Result<void> start_command();
  [[nodiscard]] std::uint64_t interrupted_since_ns() const;
  std::optional<RunEvent> next_event(Clock::time_point deadline);
  std::string look_for_orphans();
  [[nodiscard]] bool only_orphans_live() const;
  void poll_once(Clock::time_point until);
  bool take_ends();
  void look_at_who_aborts();
  [[nodiscard]] std::string history_directory() const;
  [[nodiscard]] std::optional<ErrorTail> error_tail_of(const Tracked& process) const;
  void tell_last_words(Tracked& process);
  void settle();

  template <class E>
  void record(const E& event) {
    // A record that cannot be written is seen as a gap by the reader.
    if (options_.journal != nullptr)
      (void)options_.journal->append(event);
  }

  Supervisor& supervisor_;
  RunJobOptions options_;
  JobLoop loop_;
  Output output_;
  FamilyWatch family_;
  TrackedProcesses processes_;
  RankSearch search_;
  LauncherWatch launchers_;
  std::vector<LauncherEnd> killed_launchers_{};  // Not told of so far.
  StrangerWatch strangers_;
  MeetingPort port_;
  Clock::time_point next_look_for_aborts_{};
  bool ended_{};
};

}  // namespace lockstep::launch
