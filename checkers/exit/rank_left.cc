#include "checkers/exit/rank_left.h"

#include <algorithm>

#include "checkers/hang/rendezvous.h"
#include "harness/model/error_patterns.h"
#include "harness/model/gloo_teardown.h"
#include "harness/model/recovery.h"

namespace lockstep::checkers {
namespace {

/// Others were in, or beyond, a collective that this rank never issued, and came to a bad or a
/// forced end; they did not get over it.
bool was_needed(const Run& run, const std::vector<GroupView>& groups, Rank rank) {
  for (const GroupView& group : groups) {
    const Member* left = group.member(rank);
    if (left == nullptr || !left->vouches || was_got_over(run, group, left->issued))
      continue;
    for (const Member& member : group.members) {
      if (member.rank == rank || member.issued <= left->issued)
        continue;
      const Collective* call = member.at(left->issued);
      if (call == nullptr || (call->completed_ns && !call->failed))
        continue;
      const bool ended_badly =
          std::any_of(run.ends.begin(), run.ends.end(), [&](const ProcessEnd& end) {
            return end.role == Role::kRank && end.rank == member.rank &&
                   (end.our_signal || end.failed());
          });
      if (call->failed || ended_badly)
        return true;
    }
  }
  return false;
}

// A process closes its sockets some time before it has ended.
constexpr std::uint64_t kTeardownNs = 30'000'000'000;

}  // namespace

const Collective* at_work(const Run& run, Rank rank, std::uint64_t at_ns) {
  const Process* const process = current_process(run, rank);
  if (process == nullptr || has_ended(run, process->pid, at_ns))
    return nullptr;
  const auto call = std::find_if(
      process->collectives.begin(), process->collectives.end(), [&](const Collective& each) {
        return each.issued_ns > at_ns || (!each.async && !each.completion_unseen &&
                                          each.completed_ns.value_or(kNeverNs) > at_ns);
      });
  return call == process->collectives.end() ? nullptr : &*call;
}

const Failure* without_the_store(const Run& run, const ProcessEnd& end,
                                 const std::vector<Failure>& failures) {
  const auto found = std::find_if(failures.begin(), failures.end(), [&](const Failure& failure) {
    return end.rank == Rank{0} && failure.rank != end.rank &&
           failure.at_ns + kTeardownNs > end.at_ns && says(failure.exception, Says::kStoreGone) &&
           at_work(run, *end.rank, failure.at_ns) == nullptr;
  });
  return found == failures.end() ? nullptr : &*found;
}

std::vector<const ProcessEnd*> early_leavers(const Run& run, const std::vector<GroupView>& groups,
                                             const std::vector<Failure>& failures) {
  std::vector<const ProcessEnd*> leavers;
  const LauncherEnd* const killed = launcher_killed(run);
  for (const ProcessEnd& end : run.ends) {
    const bool was_orphaned = killed != nullptr && killed->at_ns <= end.at_ns;
    if (end.role != Role::kRank || !end.rank || !came_to_its_end(run, end) || was_orphaned)
      continue;
    bool conversation = false;
    bool asked = false;
    for (const Request& request : run.requests) {
      if (request.role != Role::kRank || request.rank != end.rank || request.at_ns > end.at_ns)
        continue;
      conversation = true;
      asked |= request.message == "bye" || request.message == "fault";
    }
    if (conversation ? !asked
                     : was_needed(run, groups, *end.rank) ||
                           without_the_store(run, end, failures) != nullptr ||
                           !waiting_to_join_again(run, end).empty())
      leavers.push_back(&end);
  }
  std::stable_sort(leavers.begin(), leavers.end(),
                   [](const ProcessEnd* a, const ProcessEnd* b) { return a->at_ns < b->at_ns; });
  return leavers;
}

}  // namespace lockstep::checkers
