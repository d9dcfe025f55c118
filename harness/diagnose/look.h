// One look at the ranks of a job that runs: Python and native stacks, states of threads, children.
// Nothing is changed: memory is read from outside, and a thread is stopped for its native stack
// only where it sleeps in a wait that goes on unseen (os/stack_sampler.h).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "harness/diagnose/call.h"
#include "harness/diagnose/find_ranks.h"
#include "harness/diagnose/sleep_notes.h"
#include "harness/history/run.h"
#include "harness/os/stack_sampler.h"
#include "harness/symbols/resolver.h"

namespace lockstep::diagnose {

/// A worker of a data loader, as its rank's child.
struct Worker {
  std::int32_t pid{};
  StackSample stack{};  ///< Of its main thread, Python frames only; empty: not seen.
};

/// What is seen of a rank beside its stacks and states, which are in the run.
struct Looked {
  Rank rank{};
  os::ProcessId id{};
  std::int32_t pid{};
  bool ended{};             ///< Gone, or a zombie.
  std::string unseen{};     ///< Why its stacks were not seen,
  std::string help{};       ///< and the way out.
  std::string no_native{};  ///< Why its native stack was not, where that would have told more.
  bool moved{};             ///< Its main thread was at another line in a second look.
  /// Of its main thread: since when it has slept without a break; none: the kernel does not tell.
  std::optional<std::uint64_t> asleep_since_ns{};
  std::optional<Call> call{};              ///< Of its main thread,
  std::optional<Call> call_of_a_thread{};  ///< or of the only other one that is in one.
  std::int32_t thread_of_call{};           ///< That one.
  std::string in_flight{};                 ///< What Gloo's own threads are in: "allreduce".
  /// It has no other group than that of all ranks; none: not told.
  std::optional<bool> one_group{};
  std::vector<Worker> workers{};
};

struct Look {
  Run run{};  ///< Starts, stacks, states; no history.
  std::vector<Looked> ranks{};
  std::int32_t world_size{};
  bool all_here{};  ///< All ranks of the world were to be on this host.
  std::uint64_t at_ns{};
  [[nodiscard]] const Looked* of(Rank rank) const {
    for (const Looked& one : ranks) {
      if (one.rank == rank)
        return &one;
    }
    return nullptr;
  }
};

class Looker {
 public:
  Looker(std::vector<RankProcess> ranks, SleepNotes notes)
      : ranks_(std::move(ranks)), notes_(std::move(notes)) {}
  /// About 0.3 s, and a few milliseconds for each rank; of the first native stack up to a second.
  Look look();

 private:
  void read_sleep(Look& look);
  void read_python(Look& look);
  void read_python_again(Look& look);
  void read_native(Look& look);
  static void add_native(Look& look, const Looked& one, const std::vector<os::NativeFrame>& frames);
  void read_states(Look& look);
  static void add_children(StateSample& sample, Looked& one,
                           const std::vector<os::ProcessStat>& all);

  std::vector<RankProcess> ranks_;
  os::StackSampler sampler_{};
  symbols::Resolver resolver_{};
  std::map<std::int32_t, std::vector<os::PythonFrame>> first_{};  ///< Of main threads, by pid.
  SleepNotes notes_;
};

/// Null where it was not seen.
const StackSample* main_stack_of(const Run& run, std::int32_t pid);

}  // namespace lockstep::diagnose
