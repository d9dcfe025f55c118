// Looks at ranks that stand still, least intrusive first: heads of the history, then stacks of the
// threads that wait, then two readings of their states. The stacks come first because a ptrace stop
// is a context switch, and would spoil a reading taken before it.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "harness/history/follower.h"
#include "harness/history/journal.h"
#include "harness/history/run.h"
#include "harness/os/proc.h"
#include "harness/os/python_frames.h"
#include "harness/os/stack_sampler.h"

namespace lockstep::launch {

/// Asked when the live history stands still and fresh samples are in it: a reason to stop, or none.
/// The launcher never sees a checker; what comes back is only a text.
using StopWhen = std::function<std::optional<std::string>(const Run& live)>;

/// What a thread of the process does now, and whom it waits for as far as the kernel tells.
ThreadState state_of(std::int32_t pid, os::ThreadStat thread);

/// Every thread of it waits for a child, for what comes through a pipe, or for another of them.
bool sleeps_without_limit(std::int32_t pid);

struct ProbeOptions {
  history::JournalWriter* journal{};  ///< Where events go; none: nowhere.
  history::Follower* follower{};      ///< The live history; none: no sampling and no early stop.
  StopWhen stop_when{};
  std::chrono::milliseconds quiet_before_samples{60};
  std::chrono::milliseconds between_samples{200};
  std::chrono::milliseconds sample_pause_max{
      5'000};          ///< Pauses double up to this while nothing is proven.
  bool all_threads{};  ///< Stacks of every thread, not only of those that issue collectives.
};

/// A living process that is looked at.
struct Watched {
  std::optional<Rank> rank{};
  os::ProcessId id{};
};

class Prober {
 public:
  using Clock = std::chrono::steady_clock;

  Prober(const ProbeOptions& options, os::StackSampler& sampler)
      : options_(options), sampler_(sampler) {}

  /// Does what is due now. A value: StopWhen's reason to stop.
  std::optional<std::string> step(const std::vector<Watched>& processes);
  /// Stacks and two readings of states at once, whether they stand still or not. If the processes
  /// are about to be ended, threads that run are stopped for that, too.
  void look(const std::vector<Watched>& processes, bool before_the_end = false);
  /// One more reading of states, after a look: who slept since then was not disturbed.
  void look_again(const std::vector<Watched>& processes);
  /// Takes in what the histories show now: whoever was held up himself would tell of a stall that
  /// is none.
  void notice_moves(const std::vector<Watched>& processes);
  /// When a process last did something that its history shows, came or went.
  [[nodiscard]] Clock::time_point last_move() const { return last_move_; }
  /// When step() has something to do next.
  [[nodiscard]] Clock::time_point due() const { return due_; }
  /// A line went or came, or a process ended: what was fruitless before may not be now.
  void something_happened();

 private:
  enum class Stage : std::uint8_t { kWatching, kFirstReading, kSecondReading };
  struct Stillness {
    std::optional<history::Head> head{};
    Clock::time_point since{};
    bool outstanding{};
  };

  [[nodiscard]] bool may_look_again() const;
  /// Takes the new heads in. True if a rank that has something outstanding stands still for long
  /// enough.
  bool someone_stands_still(const std::vector<Watched>& processes);
  void sample_stacks(const std::vector<Watched>& processes);
  void sample_stack(const Watched& watched, std::int32_t tid, Clock::time_point deadline);
  void add_python_frames(StackSample& sample) const;
  void scan_stack(const Watched& watched, std::int32_t tid);
  static void add_children(StateSample& sample, const std::vector<os::ProcessStat>& all);
  static void add_holders(StateSample& sample, const std::vector<Watched>& processes);
  void read_states(const std::vector<Watched>& processes);
  template <class E>
  void record(const E& event) {
    // A record that cannot be written is seen as a gap by the reader.
    if (options_.journal != nullptr) [[maybe_unused]]
      const Result<void> written = options_.journal->append(event);
  }
  void go_on(Stage stage, std::chrono::milliseconds after);

  const ProbeOptions& options_;
  os::StackSampler& sampler_;
  Stage stage_{Stage::kWatching};
  Clock::time_point due_{Clock::time_point::max()};  // Until something happens.
  Clock::time_point not_before_{};
  Clock::time_point last_move_{Clock::now()};
  Clock::time_point head_moved_{};  // When a history last did.
  Clock::time_point look_began_{};  // The last look.
  Clock::time_point fruitless_{};   // The last move of a history before a look that proved nothing.
  std::uint64_t look_took_ns_{};    // Of a processor.
  std::chrono::milliseconds pause_{};
  std::map<std::int32_t, Stillness> still_{};       // By pid.
  std::vector<os::PythonThread> python_threads_{};  // Of the process that is being looked at.
  bool refusal_noted_{};
  bool stops_those_that_run_{};
};

}  // namespace lockstep::launch
