// Who owes what: the members without whose call an operation cannot finish, and the set of
// processes that can never go on because of it.
#pragma once

#include <vector>

#include "harness/model/job.h"
#include "harness/model/process_state.h"

namespace lockstep::checkers {

/// An operation that a stuck rank waits for, and who keeps it from finishing.
struct BlockedOn {
  Rank rank{};
  const Collective* call{};
  const GroupView* group{};
  RankSet absent{};        ///< Owe it: have not issued it.
  RankSet incompatible{};  ///< Issued something else in its place.
  RankSet broken{};        ///< Issued it and died in it, or had it fail because another one died.
};

/// Everything a deadlock is judged from, as of the first thing we did to the job.
class WaitForGraph {
 public:
  /// When lockstep or somebody else first acted on the job; never, if nobody did.
  explicit WaitForGraph(const Job& job);
  /// At this instant.
  WaitForGraph(const Run& run, std::uint64_t cutoff_ns)
      : WaitForGraph(run, cutoff_ns, group_views(run, cutoff_ns)) {}

  /// The greatest set of quiescent processes each of which waits only for what a member of the set,
  /// or a process that is gone, owes. Empty: no deadlock is proven.
  [[nodiscard]] RankSet stuck() const;
  /// What the ranks of `stuck` wait for, with those who owe it (members of `stuck` or gone).
  [[nodiscard]] std::vector<BlockedOn> waits_of(const RankSet& stuck) const;

  /// Who owes `call`, as far as their history is complete.
  [[nodiscard]] BlockedOn owing(const ProcessState& waiter, const Collective& call) const;
  /// A collective completed that a member never issued: absence proves nothing in this group
  /// (LS901).
  [[nodiscard]] Reason partly_seen() const;

  [[nodiscard]] const std::vector<ProcessState>& states() const { return states_; }
  [[nodiscard]] const ProcessState* state(Rank rank) const;
  [[nodiscard]] const std::vector<GroupView>& groups() const { return groups_; }
  [[nodiscard]] const GroupView* group_of(const ProcessState& state, const Collective& call) const;
  [[nodiscard]] const RankSet& gone() const { return gone_; }
  [[nodiscard]] std::uint64_t cutoff_ns() const { return cutoff_ns_; }

 private:
  WaitForGraph(const Run& run, std::uint64_t cutoff_ns, std::vector<GroupView> groups);
  void owing_collective(const GroupView& group, const Collective& call, BlockedOn& wait) const;
  void owing_message(const GroupView& group, const Member& me, const Collective& call,
                     BlockedOn& wait) const;
  void leave_out_what_came(ProcessState& state) const;
  [[nodiscard]] std::uint64_t messages_come(const ProcessState& state,
                                            const Collective& call) const;
  [[nodiscard]] bool is_broken(Rank rank, const Collective& call) const;
  [[nodiscard]] bool may_be_asked(const RankSet& stuck) const;
  [[nodiscard]] bool others_may_make_it(Rank rank, const RankSet& stuck) const;
  [[nodiscard]] bool can_go_on(const ProcessState& state, const RankSet& stuck) const;

  const Run& run_;
  std::uint64_t cutoff_ns_{};
  std::vector<GroupView> groups_{};
  std::vector<bool> partly_seen_{};  ///< By group.
  std::vector<ProcessState> states_{};
  RankSet gone_{};
  RankSet crashed_{};  ///< Those of `gone_` that ended by a signal or with a status other than 0.
};

}  // namespace lockstep::checkers
