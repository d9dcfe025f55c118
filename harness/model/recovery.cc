#include "harness/model/recovery.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "harness/history/op_traits.h"
#include "harness/history/rank_places.h"
#include "harness/model/call_site.h"
#include "harness/model/matching.h"

namespace lockstep {
namespace {

/// The first collective of another group that it issued after this instant and that ended well.
const Collective* next_elsewhere(const Process& process, std::uint32_t group,
                                 std::uint64_t after_ns) {
  const auto next = std::find_if(
      process.collectives.begin(), process.collectives.end(), [&](const Collective& call) {
        return call.group != group && call.issued_ns > after_ns && call.completed_ns &&
               !call.failed && !history::is_point_to_point(call.op);
      });
  return next == process.collectives.end() ? nullptr : &*next;
}

/// It returned, and what it gave this member is right, or nothing, whoever else did not come: where
/// all who came made the same call.
bool waited_for_nobody(const Member& member, const Collective& call) {
  const history::WaitsFor whom = history::traits_of(call.op).waits_for;
  return whom == history::WaitsFor::kNobody ||
         (whom == history::WaitsFor::kAllOnRoot && member.about().my_rank != call.root);
}

/// All who came to this place made the same call.
bool all_agree(const GroupView& group, std::uint64_t seq) {
  const Collective* first = nullptr;
  for (const Member& member : group.members) {
    const Collective* const call = member.at(seq);
    if (first != nullptr && call != nullptr && !agree(*first, *call))
      return false;
    first = first == nullptr ? call : first;
  }
  return true;
}

/// All ranks, and whatever started them, with status 0 and by themselves.
bool all_ended_well(const Run& run) {
  if (!run.journal_complete)
    return false;
  const RankSet ranks = ranks_of(run);
  const bool ranks_did = std::all_of(ranks.begin(), ranks.end(), [&](Rank rank) {
    return std::any_of(run.ends.begin(), run.ends.end(), [&](const ProcessEnd& end) {
      return end.role == Role::kRank && end.rank == rank && !end.our_signal && end.exit_status == 0;
    });
  });
  return ranks_did && std::none_of(run.ends.begin(), run.ends.end(), [&](const ProcessEnd& end) {
           return history::is_command(run, end.pid) && (end.failed() || end.our_signal);
         });
}

/// The first place at which some member never came to what others had issued.
std::optional<std::uint64_t> first_absence(const GroupView& group) {
  std::uint64_t fewest = kNeverNs, most = 0;
  for (const Member& member : group.members) {
    fewest = std::min(fewest, member.issued);
    most = std::max(most, member.issued);
  }
  return fewest < most ? std::optional(fewest) : std::nullopt;
}

void tell_where_it_left(const GroupView& group, const Member& member, std::uint64_t seq,
                        Finding& finding) {
  const Collective* const last = seq == 0 ? nullptr : member.at(seq - 1);
  const auto site = last == nullptr ? std::nullopt : site_of(*member.process, *last, "peer");
  finding.add(site);
  finding
      .tell(EvidenceKind::kCall, {member.rank}, "rank {} left {}", member.rank.value,
            last == nullptr ? "before it issued anything there"
                            : fmt::format("after {} #{}", history::name_of(last->op), last->seq))
      .about(group.place(seq))
      .at(site);
}

Finding told(const std::vector<GroupView>& groups, const GroupView& group, std::uint64_t seq) {
  Finding finding;
  finding.code = Code::kAbsentRank;
  finding.severity = Severity::kNote;
  finding.confidence = Confidence::kCertain;
  finding.group = group.label();
  finding.seq = seq;
  RankSet absent, waited;
  const Collective* call = nullptr;
  for (const Member& member : group.members) {
    const Collective* const theirs = member.at(seq);
    if (theirs == nullptr)
      absent.insert(member.rank);
    else if (theirs->failed)
      waited.insert(member.rank);
    finding.affected.insert(member.rank);
    if (theirs != nullptr && theirs->failed && call == nullptr)
      call = theirs;
  }
  finding.op = std::string(history::name_of(call->op));
  finding.at_ns = call->issued_ns;
  finding.headline =
      fmt::format("{} left group {} without {}; it failed for {}, which got over that",
                  words(absent), group.label(), group.label(*call), words(waited));
  for (const Member& member : group.members) {
    const Collective* const theirs = member.at(seq);
    if (theirs == nullptr) {
      tell_where_it_left(group, member, seq, finding);
    } else {
      const auto site = site_of(*member.process, *theirs, "peer");
      finding.add(site);
      finding
          .tell(EvidenceKind::kCall, {member.rank}, "rank {} saw {} {} after {:.1f} s",
                member.rank.value, group.label(*theirs), theirs->failed ? "fail" : "return",
                static_cast<double>(*theirs->completed_ns - theirs->issued_ns) / 1e9)
          .about(group.place(seq))
          .at(site);
    }
    const Collective* const next = next_elsewhere(*member.process, member.group, call->issued_ns);
    for (const GroupView& other : groups) {
      const Member* const there = next == nullptr ? nullptr : other.member(member.rank);
      if (there != nullptr && there->process == member.process && there->group == next->group)
        finding.evidence.back().text += fmt::format(", and worked on in group {}", other.label());
    }
  }
  return finding;
}

}  // namespace

bool was_left_behind(const Process& process, const Collective& call) {
  return call.failed && call.completed_ns &&
         next_elsewhere(process, call.group, *call.completed_ns) != nullptr;
}

bool was_got_over(const Run& run, const GroupView& group, std::uint64_t seq) {
  if (!group.fully_seen())
    return false;
  const bool agreed = all_agree(group, seq);
  std::uint64_t issued_ns = kNeverNs;  // Of those that failed.
  for (const Member& member : group.members) {
    const Collective* const call = member.at(seq);
    if (call == nullptr && member.issued > seq)
      return false;  // It came to it, and what became of that is not known.
    if (call == nullptr)
      continue;
    if (was_left_behind(*member.process, *call))
      issued_ns = std::min(issued_ns, call->issued_ns);
    else if (call->failed || !call->completed_ns || !agreed || !waited_for_nobody(member, *call) ||
             next_elsewhere(*member.process, call->group, *call->completed_ns) == nullptr)
      return false;
  }
  if (issued_ns == kNeverNs)
    return false;
  const bool all_worked_on =
      std::all_of(group.members.begin(), group.members.end(), [&](const Member& member) {
        return member.at(seq) != nullptr ||
               next_elsewhere(*member.process, member.group, issued_ns) != nullptr;
      });
  return all_worked_on || all_ended_well(run);
}

std::vector<Finding> recoveries(const Run& run, const std::vector<GroupView>& groups) {
  std::vector<Finding> notes;
  for (const GroupView& group : groups) {
    const auto seq = first_absence(group);
    if (seq && was_got_over(run, group, *seq))
      notes.push_back(told(groups, group, *seq));
  }
  return notes;
}

}  // namespace lockstep
