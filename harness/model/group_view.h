// The groups of a run seen across ranks: for each group the records of every member, by sequence
// number. What the matching and progress checkers start from.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "harness/history/run.h"
#include "harness/verdict/verdict.h"

namespace lockstep {

inline constexpr std::uint64_t kNeverNs = std::numeric_limits<std::uint64_t>::max();

/// One member's part of a group, as far as it happened before the view's cutoff.
struct Member {
  Rank rank{};
  const Process* process{};
  std::uint32_t group{};  ///< Index into process->groups.
  bool is_complete{};     ///< Absence of a record is absence of a call.
  bool overwritten{};     ///< The first records are gone; counts and digests are not.
  std::uint64_t issued{};
  std::uint64_t first_seq{};               ///< Of slots[0].
  std::vector<const Collective*> slots{};  ///< Consecutive; null where a record is missing.

  [[nodiscard]] const Collective* at(std::uint64_t seq) const {
    return seq < first_seq || seq >= end_seq() ? nullptr : slots[seq - first_seq];
  }
  /// One behind the last slot.
  [[nodiscard]] std::uint64_t end_seq() const { return first_seq + slots.size(); }
  std::shared_ptr<const std::vector<std::uint64_t>> site_keys{};  ///< By index of Process::sites.

  /// Where a call came from, comparable across ranks; 0 = not recorded.
  [[nodiscard]] std::uint64_t site_key(const Collective& call) const {
    return site_keys == nullptr || call.site >= site_keys->size() ? 0 : (*site_keys)[call.site];
  }
  [[nodiscard]] const Group& about() const { return process->groups[group]; }
};

struct GroupView {
  std::string name{};
  std::uint32_t generation{};  ///< Counts groups of the same name, size and ranks.
  std::int32_t size{};
  std::vector<Rank> ranks{};      ///< Global ranks by group rank; empty = not known.
  std::vector<Member> members{};  ///< Those with a history, ascending by rank.
  bool members_disagree{};        ///< Members list each other, and not the same members.
  bool unplaced{};  ///< Of one member alone: which groups of the others it meets is not known.
  /// Of the whole run: journal complete, a history of every rank, all of them complete. Where
  /// anything is missing, what it would have told might blame another rank.
  bool run_is_whole{};

  /// Every member has a history that is complete for this group.
  [[nodiscard]] bool fully_seen() const;
  [[nodiscard]] const Member* member(Rank rank) const;
  /// Global rank of a rank of the group; none if not known.
  [[nodiscard]] std::optional<Rank> global_rank(std::int32_t group_rank) const;
  /// "dp", or "dp (2nd)" for a group created again under an old name.
  [[nodiscard]] std::string label() const;
  /// "all_reduce dp#1291".
  [[nodiscard]] std::string label(const Collective& call) const;
  [[nodiscard]] CallRef place(std::uint64_t seq) const { return {label(), seq}; }
  /// None of a message: these are counted apart.
  [[nodiscard]] std::optional<CallRef> place(const Collective& call) const;
};

/// What happened up to `cutoff_ns`. One process per rank: the last that had a group.
std::vector<GroupView> group_views(const Run& run, std::uint64_t cutoff_ns = kNeverNs);

/// The history file of a rank that counts: the last one with a group, else the last one. Null if
/// none.
const Process* current_process(const Run& run, Rank rank);

/// Where no view of the group is at hand; none as well where the process has two groups of that
/// name.
std::optional<CallRef> place_of(const Process& process, const Collective& call);

/// All ranks of the run: the plan's world, and whoever wrote a history.
RankSet ranks_of(const Run& run);

/// Of the process that was started last for this rank; 0 if none is on record.
std::int32_t pid_of(const Run& run, Rank rank);

/// The end of this process, before `before_ns`, is on record.
bool has_ended(const Run& run, std::int32_t pid, std::uint64_t before_ns = kNeverNs);

/// This rank failed by itself, between its calls, and had gone when one of the job (a launcher, as
/// a rule) asked the others to end: on a busy machine its end may be seen later.
bool was_left_out(const Run& run, const ProcessEnd& end);

/// Whoever started ranks and was killed first, while they lived; null if nobody was.
const LauncherEnd* launcher_killed(const Run& run);

/// "torchrun (pid 4711) was killed by SIGUSR1".
std::string in_words(const LauncherEnd& end);

/// When one of the job (a launcher, as a rule) began to end the ranks, before any of them had
/// failed or ended, and did not end well itself: it was asked to end, or had waited long enough. Or
/// when it was killed, before any of them had failed: what they do from then on, they may do
/// because of it.
std::optional<std::uint64_t> ended_from_outside_ns(const Run& run);

/// Lockstep did this: "deadline", "interrupted".
bool was(const Run& run, std::string_view acted);

/// When something was first ended by us, or from outside: what follows came of it, if not kNeverNs.
std::uint64_t first_act_ns(const Run& run);

}  // namespace lockstep
