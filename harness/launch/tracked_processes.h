// The processes of a job that are its ranks, and the command that started them. That a process is a
// rank may be known (we started it, or its history has a default group), or only be told by its
// environment, which whatever a rank starts inherits: such a one is not written down before its
// history says so, or the job is over and no rank was found above it.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "harness/launch/job_process.h"
#include "harness/launch/lineage.h"
#include "harness/launch/prober.h"
#include "harness/launch/rank_environment.h"

namespace lockstep::launch {

struct Tracked : JobProcess {
  std::optional<std::size_t> error_stream{};  ///< Of its stderr, where we hold it.
  bool only_told{};                           ///< Not written down yet.
  bool is_command{};                          ///< What the user started; it may become a rank.
  bool failed_to_join{};                      ///< It raised in init_process_group.
  std::uint64_t found_ns{};
  Told told{};
};

/// A process that was gone before anybody looked: what its shim told.
struct Gone {
  std::int32_t pid{};
  Rank rank{};
  std::int32_t exit_status{};
};

class TrackedProcesses {
 public:
  /// `journal` may be null.
  explicit TrackedProcesses(history::JournalWriter* journal) : journal_(journal) {}

  Tracked& add(Role role, std::optional<Rank> rank, os::ProcessHandle process,
               bool only_told = false, std::int32_t world_size = 0);
  /// Keeps hold of these, until a while after they have ended: how one ended is known then, though
  /// only its history says that it was a rank. `failed` says so of one that has ended: of such the
  /// last ones are kept.
  void hold(const std::vector<os::ProcessStat>& family,
            const std::function<bool(std::int32_t pid)>& failed);
  /// Of those that are held, who has ended and failed.
  [[nodiscard]] std::vector<os::ProcessStat> failed() const;
  /// A process was found to be this rank, of a world of this size if that is known. True if it was
  /// not known to be there.
  bool found(const os::ProcessId& id, Rank rank, bool only_told, std::int32_t world_size = 0);
  /// It went to join, so it is one.
  void believe(Tracked& process);
  /// Who was told a rank and failed before it was in a group, where its parent has told another one
  /// to a process that is a rank.
  void believe_who_failed_beside_a_rank();
  /// Two of them that live, or failed to join, were told one rank by one process, to meet at one
  /// place.
  [[nodiscard]] bool share_a_rank() const;
  /// What was only told to be a rank, and descends from one or is there beside it, is none.
  void forget_helpers(const Lineage& lineage);
  /// The job is over: of the others that were only told, the oldest ones are ranks that never came
  /// so far, those that one process told alike are, and those that came into a group.
  void believe_the_rest(const std::set<std::int32_t>& in_group = {});
  /// Writes down that it was there, and how it ended.
  void was_there(const Gone& gone);
  /// Takes the end of one that has ended.
  void take_end(Tracked& process);
  /// Zombies among these that have become our children, since their parent went without asking, and
  /// whose end was taken: nobody needs them any more.
  void reap_inherited(const std::vector<os::ProcessStat>& family);

  [[nodiscard]] bool has(Rank rank) const;
  /// Where we hold what it says: that of the rank, whoever of its processes says it.
  [[nodiscard]] std::optional<std::size_t> error_stream_of(const Tracked& process) const;
  /// The last process that was this rank and ended with status 1, as one that raised does, or
  /// aborted on its way there; null if there is none.
  [[nodiscard]] const Tracked* ended_rank(std::optional<std::int32_t> rank) const;
  [[nodiscard]] bool any_lives() const;
  [[nodiscard]] bool command_lives() const;
  /// All of them, ended ones included: as a rank only if that is known.
  [[nodiscard]] std::vector<Watched> known() const;
  /// Those that live: ranks, and on request the command.
  [[nodiscard]] std::vector<Watched> living(bool with_command) const;
  [[nodiscard]] std::vector<JobProcess*> all();
  [[nodiscard]] std::list<Tracked>& each() { return processes_; }
  [[nodiscard]] const std::list<Tracked>& each() const { return processes_; }

 private:
  struct Held {
    os::ProcessHandle process{};
    os::ProcessStat stat{};
    bool ended{}, failed{};  // By the last look.
  };
  void write_down(Tracked& process);
  std::optional<os::ProcessHandle> hold_of(const os::ProcessId& id);
  Tracked* find(const os::ProcessId& id);  // Null if it is none of them.

  history::JournalWriter* journal_;
  std::list<Tracked> processes_{};  // Stable addresses.
  std::map<os::ProcessId, Held> held_{};
};

}  // namespace lockstep::launch
