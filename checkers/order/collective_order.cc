#include "checkers/order/collective_order.h"

#include <fmt/format.h>

#include <algorithm>

#include "checkers/blame/attribution.h"
#include "checkers/order/coalesced_calls.h"
#include "checkers/order/crossed_threads.h"
#include "checkers/order/divergence.h"
#include "checkers/order/group_creations.h"
#include "checkers/order/kindred_groups.h"
#include "checkers/order/lines_of_some.h"
#include "checkers/order/lines_part.h"
#include "checkers/order/point_to_point.h"
#include "harness/history/format.h"
#include "harness/history/recorded.h"
#include "harness/model/call_site.h"
#include "harness/model/coverage.h"
#include "harness/model/error_patterns.h"
#include "harness/model/group_view.h"
#include "harness/model/matching.h"
#include "harness/model/recovery.h"

namespace lockstep::checkers {
namespace {

constexpr std::size_t kLinesMax = 8;

/// What was learnt of one group.
struct GroupResult {
  std::optional<Finding> finding{};
  Reason undecided{};
  std::uint64_t compared{};
};

/// Over all views of one name: each holds the members that agree with each other.
Finding group_differs(const std::vector<GroupView>& groups, const GroupView& group) {
  Finding finding;
  finding.code = Code::kGroupDiffers;
  finding.group = group.label();
  finding.confidence = Confidence::kCertain;
  for (const GroupView& view : groups) {
    if (!view.members_disagree || view.name != group.name)
      continue;
    RankSet members;
    RankSet listed;
    for (const Member& member : view.members) {
      members.insert(member.rank);
      finding.affected.insert(member.rank);
      finding.at_ns = std::max(finding.at_ns, member.process->opened_ns);
    }
    for (const Rank rank : view.ranks)
      listed.insert(rank);
    if (finding.evidence.size() < kLinesMax)
      finding.tell_of(EvidenceKind::kGroup, members, "a group of {}, {}", view.size, words(listed));
  }
  finding.headline =
      fmt::format("members of group {} do not agree on who belongs to it", group.label());
  return finding;
}

bool is_first_of_its_name(const std::vector<GroupView>& groups, const GroupView& group) {
  return &group == &*std::find_if(groups.begin(), groups.end(), [&](const GroupView& view) {
    return view.members_disagree && view.name == group.name;
  });
}

/// Who was told by the call that what it had given was wrong in itself: its splits are not those of
/// its own tensor. That is looked at before anything is sent.
RankSet refused_in_the_call(const Run& run, const GroupView& group, const std::vector<At>& calls) {
  RankSet refused;
  for (const At& at : calls) {
    const bool last = at.call == at.member->slots.back();
    if (last && std::any_of(run.raised.begin(), run.raised.end(), [&](const Raised& raised) {
          return raised.rank == at.member->rank && raised.pid == at.member->process->pid &&
                 raised.at_ns >= at.call->issued_ns && says(raised.text, Says::kOwnSplits);
        }))
      refused.insert(at.member->rank);
  }
  return refused.size() < static_cast<std::size_t>(group.size) &&
                 known_before(group, calls.front().call->seq)
             ? refused
             : RankSet{};
}

/// What a rank sends to another is not what that one receives from it (format.h).
bool exchange_disagrees(const GroupView& group, const std::vector<At>& calls) {
  if (calls.size() != static_cast<std::size_t>(group.size))
    return false;
  std::uint64_t all_senders = 0;
  std::uint64_t all_receivers = 0;
  const auto size = static_cast<std::uint64_t>(group.size);
  for (std::uint64_t rank = 0; rank < size; ++rank) {
    all_senders += history::share_of_sender(rank);
    all_receivers += history::share_of_receiver(rank);
  }
  std::uint64_t sent = 0;
  std::uint64_t received = 0;
  for (const At& at : calls) {
    const Collective& call = *at.call;
    if (!call.shares_told)
      return false;
    const auto rank = static_cast<std::uint64_t>(at.member->about().my_rank);
    sent += history::share_of_sender(rank) *
            (call.exchange.sent != 0 ? call.exchange.sent : call.numel_in / size * all_receivers);
    received += history::share_of_receiver(rank) * (call.exchange.received != 0
                                                        ? call.exchange.received
                                                        : call.numel_out / size * all_senders);
  }
  return sent != received;
}

/// `in_sum`: over all ranks, and not only between two of them.
Finding sums_differ(const Run& run, const GroupView& group, std::uint64_t seq,
                    const std::vector<At>& calls, bool in_sum) {
  Finding finding;
  finding.code = Code::kDifferentSize;
  finding.group = group.label();
  finding.op = std::string(history::name_of(calls.front().call->op));
  finding.seq = seq;
  finding.confidence = Confidence::kCertain;
  finding.culprits = refused_in_the_call(run, group, calls);
  for (const At& at : calls) {
    const bool refused = finding.culprits.contains(at.member->rank);
    if (!refused)
      finding.affected.insert(at.member->rank);
    finding.at_ns = std::max(finding.at_ns, at.call->issued_ns);
    if (finding.evidence.size() < kLinesMax)
      finding
          .tell_of(EvidenceKind::kCall, {at.member->rank}, "hands in {} and receives {} elements",
                   at.call->numel_in, at.call->numel_out)
          .about(group.place(seq));
    if (auto site = site_of(*at.member->process, *at.call, refused ? "culprit" : "peer");
        site && finding.sites.size() < kLinesMax)
      finding.sites.insert(refused ? finding.sites.begin() : finding.sites.end(), *site);
  }
  if (!finding.culprits.empty())
    finding.cause = fmt::format(
        "the splits that {} gave are not those of its own tensor: the call "
        "itself refused them",
        words(finding.culprits));
  finding.headline =
      in_sum ? fmt::format("the sizes of {} do not add up over its {} ranks",
                           group.label(*calls.front().call), group.size)
             : fmt::format(
                   "the splits of {} do not fit each other: what a rank sends to another is "
                   "not what that one expects of it",
                   group.label(*calls.front().call));
  return finding;
}

/// Overwritten records are compared by their digests.
Reason overwritten_difference(const GroupView& group) {
  std::size_t blocks = kNeverNs;
  bool overwritten = false;
  for (const Member& member : group.members) {
    overwritten |= member.overwritten;
    blocks = std::min(blocks, member.about().digests.size());
  }
  if (!overwritten)
    return {};
  for (std::size_t block = 0; block < blocks; ++block) {
    for (const Member& member : group.members) {
      if (member.about().digests[block] != group.members.front().about().digests[block])
        return lacking(
            Code::kEventsDropped,
            fmt::format("the collectives {}#{} to #{} differ between ranks and are overwritten",
                        group.label(), block * history::kDigestBlock,
                        (block + 1) * history::kDigestBlock - 1));
    }
  }
  return {};
}

Reason not_comparable(const GroupView& group) {
  for (const Member& member : group.members) {
    const Group& about = member.about();
    if (about.named_by_store && !about.seen_from_creation &&
        (member.process->capabilities & history::kSeesBackends) == 0)
      return incomplete(
          fmt::format("what rank {} calls on the backend of group {} is not seen in torch {}",
                      member.rank.value, group.label(), member.process->torch_version));
    if (group.unplaced && group.size > 1)
      return incomplete(
          fmt::format("which groups of other ranks are group {} of rank {} is not known",
                      group.label(), member.rank.value));
    if (!member.about().seen_from_creation)
      return incomplete(
          fmt::format("group {} was met late on rank {}", group.label(), member.rank.value));
  }
  return {};
}

/// The calls of all members at one place.
struct Place {
  std::vector<const Collective*> calls{};
  bool done{};          ///< All of them.
  bool overlapped{};    ///< A rank's threads called at once: which call is whose is not known.
  bool one_call{true};  ///< All of them agree.
  bool one_site{true};
  std::uint64_t site{};  ///< Of the first.
};

void look_at(const GroupView& group, std::uint64_t seq, Place& place) {
  place.calls.clear();
  place.overlapped = false;
  place.done = true;
  place.one_call = place.one_site = true;
  for (const Member& member : group.members) {
    const Collective* call = member.at(seq);
    if (call == nullptr)
      continue;
    const std::uint64_t site = member.site_key(*call);
    if (place.calls.empty())
      place.site = site;
    else
      place.one_call = place.one_call && agree(*place.calls.front(), *call);
    place.one_site = place.one_site && site == place.site;
    place.overlapped |= call->overlapped;
    place.done = place.done && call->completed_ns;
    place.calls.push_back(call);
  }
}

/// Recorders count a batch of messages where some have it, and tell of lists the first tensor only:
/// what has completed everywhere was no other operation, and its sums are not looked at.
bool is_how_recorders_tell(const Run& run, const Place& place) {
  return is_of_dumps(run) && place.done &&
         (place.one_call ||
          std::any_of(place.calls.begin(), place.calls.end(), [&](const Collective* call) {
            const std::vector<Code> codes = differences(*place.calls.front(), *call);
            return !codes.empty() && codes.front() == Code::kDifferentOp;
          }));
}

GroupResult compare(const Run& run, const GroupView& group) {
  GroupResult result;
  std::uint64_t begin = kNeverNs;
  std::uint64_t end = 0;
  for (const Member& member : group.members) {
    begin = std::min(begin, member.first_seq);
    end = std::max(end, member.end_seq());
  }
  bool had_agreed =
      false;  // All ranks once ran one line at the same place, and another at another.
  std::uint64_t agreed_site = 0;
  Place place;
  for (std::uint64_t seq = begin; seq < end; ++seq) {
    look_at(group, seq, place);
    if (place.calls.size() < 2)
      continue;
    ++result.compared;
    if (is_how_recorders_tell(run, place))
      continue;
    const bool sums_wrong = place.one_call && sums_disagree(place.calls, group.size);
    if (place.overlapped && (!place.one_call || sums_wrong)) {
      result.finding = crossed_threads(run, group, seq);
      if (result.finding)
        return result;
      result.undecided.text =
          fmt::format("the order around {}#{} is not known: threads of a rank called at once",
                      group.label(), seq);
      return result;
    }
    if (!place.one_call) {
      result.finding = divergence(run, group, seq);
      if (const Reason earlier = overwritten_difference(group); earlier.lacks)
        result.finding->tell(EvidenceKind::kCall, result.finding->affected, "{}", earlier.text);
      return result;
    }
    if (sums_wrong) {
      result.finding = sums_differ(run, group, seq, calls_at(group, seq), /*in_sum=*/true);
      return result;
    }
    if (place.calls.front()->shares_told && exchange_disagrees(group, calls_at(group, seq))) {
      result.finding = sums_differ(run, group, seq, calls_at(group, seq), /*in_sum=*/false);
      return result;
    }
    if (!place.one_site && !is_of_dumps(run)) {
      result.finding = silent_swap(group, seq, had_agreed);
      if (result.finding)
        return result;
    } else if (place.site != 0 && place.calls.size() == group.members.size()) {
      had_agreed |= agreed_site != 0 && agreed_site != place.site;
      agreed_site = place.site;
    }
  }
  result.undecided = overwritten_difference(group);
  if (!run.plan.scenario.empty() || result.undecided.lacks || is_of_dumps(run))
    return result;
  result.finding = left_out_behind_a_helper(run, group);
  if (!result.finding)
    result.finding = issued_by_some_only(run, group);
  return result;
}

GroupResult check_group(const Run& run, const std::vector<GroupView>& groups,
                        const GroupView& group) {
  GroupResult result;
  if (group.members_disagree) {
    if (is_first_of_its_name(groups, group))
      result.finding = group_differs(groups, group);
    return result;
  }
  if (group.members.size() < 2 && !group.unplaced)
    return result;
  result.undecided = not_comparable(group);
  return result.undecided.lacks ? result : compare(run, group);
}

}  // namespace

Verdict CollectiveOrder::check(const Job& job) const {
  const Run& run = job.run();
  Verdict verdict{.name = std::string(name())};
  std::uint64_t collectives = 0;
  const std::vector<GroupView>& groups = job.groups();
  for (const GroupView& group : groups) {
    GroupResult result = check_group(run, groups, group);
    collectives += result.compared;
    if (result.finding && is_of_dumps(run))
      blame_by_kindred(groups, group, *result.finding);
    if (result.finding) {
      if (result.finding->seq && was_got_over(run, group, *result.finding->seq))
        result.finding->severity = Severity::kNote;
      verdict.findings.push_back(std::move(*result.finding));
    }
    if (auto unmatched = is_of_dumps(run) ? std::nullopt : unmatched_pair(group, collectives))
      verdict.findings.push_back(std::move(*unmatched));
    if (auto missing = is_of_dumps(run) ? std::nullopt : never_sent(run, group))
      verdict.findings.push_back(std::move(*missing));
    if (verdict.reason.empty())
      verdict.because(std::move(result.undecided));
  }
  for (Finding& finding : creations_that_differ(run))
    verdict.findings.push_back(std::move(finding));
  for (Finding& finding : calls_set_aside(run))
    verdict.findings.push_back(std::move(finding));
  verdict.examined["collectives"] = collectives;
  verdict.examined["groups"] = groups.size();
  std::stable_sort(verdict.findings.begin(), verdict.findings.end(),
                   [](const Finding& a, const Finding& b) { return a.at_ns < b.at_ns; });
  const bool wrong =
      std::any_of(verdict.findings.begin(), verdict.findings.end(),
                  [](const Finding& finding) { return finding.severity == Severity::kError; });
  if (wrong) {
    verdict.outcome = Outcome::kFail;
    verdict.because({});
  } else if (groups.empty() && verdict.reason.empty()) {
    verdict.reason = "the history has no group";
  } else if (collectives == 0 && verdict.reason.empty()) {
    verdict.reason = "no collective was seen on two ranks";
  } else if (verdict.reason.empty()) {
    verdict.outcome = Outcome::kPass;
  }
  return verdict;
}

}  // namespace lockstep::checkers
