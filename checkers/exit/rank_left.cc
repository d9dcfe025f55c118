#include "checkers/exit/rank_left.h"

#include <fmt/format.h>

#include <algorithm>

#include "checkers/hang/rendezvous.h"
#include "harness/model/call_site.h"
#include "harness/model/ending.h"
#include "harness/model/error_patterns.h"
#include "harness/model/recovery.h"

namespace lockstep::checkers {
namespace {

/// Others were in, or beyond, a collective that this rank never issued, and came to a bad or a
/// forced end; they did not get over it.
bool was_needed(const Run& run, const std::vector<GroupView>& groups, Rank rank) {
  for (const GroupView& group : groups) {
    const Member* left = group.member(rank);
    if (left == nullptr || !left->is_complete || was_got_over(run, group, left->issued))
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

/// Rank 0 had left, or was about to, when this one found the store gone; or null.
const Failure* without_the_store(const Run& run, const ProcessEnd& end,
                                 const std::vector<Failure>& failures) {
  const auto found = std::find_if(failures.begin(), failures.end(), [&](const Failure& failure) {
    return end.rank == Rank{0} && failure.rank != end.rank &&
           failure.at_ns + kTeardownNs > end.at_ns && says(failure.exception, Says::kStoreGone) &&
           at_work(run, *end.rank, failure.at_ns) == nullptr;
  });
  return found == failures.end() ? nullptr : &*found;
}

/// "after all_reduce #3 at train.py:20", or "in" it.
Evidence last_call(const Run& run, Rank rank) {
  const Process* const process = current_process(run, rank);
  if (process == nullptr || process->collectives.empty())
    return evidence_of(EvidenceKind::kCall, {rank}, "before it issued anything");
  const Collective& call = process->collectives.back();
  return evidence_of(EvidenceKind::kCall, {rank}, "{} {} #{}", in_or_after(call),
                     history::name_of(call.op), call.seq)
      .about(place_of(*process, call))
      .at(site_of(*process, call, "last"));
}

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

std::vector<const ProcessEnd*> early_leavers(const Run& run, const std::vector<GroupView>& groups,
                                             const std::vector<Failure>& failures) {
  std::vector<const ProcessEnd*> leavers;
  const LauncherEnd* const killed = launcher_killed(run);
  for (const ProcessEnd& end : run.ends) {
    const bool was_orphaned = killed != nullptr && killed->at_ns <= end.at_ns;
    if (end.role != Role::kRank || !end.rank || was_orphaned ||
        !ending_of(run, end).of_the_program())
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

void tell_last_call(const Run& run, Rank rank, std::string_view verb, Finding& finding) {
  Evidence last = last_call(run, rank);
  last.text.insert(0, fmt::format("{} {} ", words({rank}), verb));
  finding.evidence.push_back(std::move(last));
}

Finding left_early(const Run& run, const std::vector<const ProcessEnd*>& leavers,
                   const std::vector<Failure>& failures, bool whole) {
  const Rank rank = *leavers.front()->rank;
  Finding finding;
  finding.code = Code::kLeftEarly;
  finding.at_ns = leavers.front()->at_ns;
  Evidence last = last_call(run, rank);
  RankSet alike{rank};
  for (const ProcessEnd* const leaver : leavers) {
    if (last_call(run, *leaver->rank).text == last.text)
      alike.insert(*leaver->rank);
  }
  const bool most = 2 * alike.size() > ranks_of(run).size();
  if (!most)
    alike = {rank};
  if (!most && (whole || leavers.size() == 1)) {
    finding.culprits = {rank};
    finding.confidence = Confidence::kCertain;
  }
  finding.affected = ranks_of(run).minus(finding.culprits);
  const auto aborted = std::find_if(failures.begin(), failures.end(), [&](const Failure& failure) {
    return failure.rank == rank && failure.how == Ended::kInGlooTeardown;
  });
  finding.consequences = failures.size() + leavers.size() - (aborted == failures.end() ? 1 : 2);
  const Process* process = current_process(run, rank);
  if (process != nullptr && !process->collectives.empty()) {
    finding.add(site_of(*process, process->collectives.back(),
                        finding.culprits.empty() ? "peer" : "culprit"));
  }
  finding.headline = fmt::format("{} {} while others still need {}", words(alike),
                                 aborted == failures.end() ? "exited with status 0" : "ended",
                                 alike.size() == 1 ? "it" : "them");
  last.ranks = alike;
  last.text.insert(0, fmt::format("{} left ", words(alike)));
  finding.evidence.push_back(std::move(last));
  if (aborted != failures.end()) {
    finding.also.push_back(Code::kRankDied);
    finding.tell(EvidenceKind::kEnd, {rank}, "{} {}", words({rank}), in_words(*aborted));
  }
  if (most)
    finding.tell(EvidenceKind::kCall, alike,
                 "most left there: the others may have made a call too many");
  if (const Failure* const found = without_the_store(run, *leavers.front(), failures)) {
    finding
        .tell(kind_of(*found), {found->rank}, "with it went the store; {} {}", words({found->rank}),
              in_words(*found))
        .at(found->raised);
    finding.help = "let all ranks come together (a barrier) before rank 0 leaves";
  }
  if (const RankSet joining = waiting_to_join_again(run, *leavers.front()); !joining.empty()) {
    const auto site = where_it_joins(run, *joining.begin());
    finding
        .tell(EvidenceKind::kWait, joining,
              "{} came to another init_process_group, and nobody was left to come to it",
              words(joining))
        .site = site;
    finding.add(site);
  }
  for (const Request& request : run.requests) {
    if (request.role == Role::kRank && request.rank == rank && !request.answered_ns)
      finding.tell(EvidenceKind::kWait, {rank}, "its request `{}` was not answered",
                   request.message);
  }
  return finding;
}

}  // namespace lockstep::checkers
