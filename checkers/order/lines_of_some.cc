#include "checkers/order/lines_of_some.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "checkers/blame/attribution.h"
#include "checkers/order/lines_part.h"
#include "harness/history/format.h"
#include "harness/model/call_site.h"
#include "harness/model/coverage.h"

namespace lockstep::checkers {
namespace {

/// Of calls, by line and operation.
using Key = std::pair<std::uint64_t, history::Op>;
using Counts = std::map<Key, std::size_t>;

Key key_of(const Member& member, const Collective& call) {
  return {member.site_key(call), call.op};
}

/// Nothing, where one is not known.
std::optional<Counts> lines_of(const Member& member) {
  Counts counts;
  for (const Collective* const call : member.slots) {
    if (call == nullptr || call->overlapped || member.site_key(*call) == 0)
      return std::nullopt;
    ++counts[key_of(member, *call)];
  }
  return counts;
}

/// Those of `mine` that `theirs` has not at all; empty if one that both have came oftener in
/// `mine`: then the others may have left it too soon.
Counts only_mine(const Counts& mine, const Counts& theirs) {
  Counts own;
  for (const auto& [line, count] : mine) {
    const auto at = theirs.find(line);
    if (at == theirs.end())
      own.emplace(line, count);
    else if (count > at->second)
      return {};
  }
  return own;
}

/// Before any call is counted.
bool some_wait_for_more(const GroupView& group) {
  const auto known = [](const Member& member) {
    return !member.slots.empty() && member.slots.back() != nullptr;
  };
  if (!std::all_of(group.members.begin(), group.members.end(), known))
    return false;
  const auto [least, most] = std::minmax_element(
      group.members.begin(), group.members.end(),
      [](const Member& a, const Member& b) { return a.end_seq() < b.end_seq(); });
  return least != group.members.end() && least->end_seq() < most->end_seq() &&
         ends_in_a_wait(*most);
}

struct Split {
  std::vector<const Member*> with{}, without{};
  Counts own{};  ///< Of those with.
};

std::optional<Split> split_of(const GroupView& group) {
  std::vector<Counts> all;
  std::uint64_t longest = 0;
  for (const Member& member : group.members) {
    const auto lines = member.slots.empty() || member.first_seq != group.members.front().first_seq
                           ? std::nullopt
                           : lines_of(member);
    if (!lines)
      return std::nullopt;
    all.push_back(*lines);
    longest = std::max(longest, member.end_seq());
  }
  Split split;
  const Counts* least = nullptr;
  for (std::size_t i = 0; i < all.size(); ++i) {
    const Member& member = group.members[i];
    (member.end_seq() == longest ? split.with : split.without).push_back(&member);
    if (member.end_seq() != longest)
      least = &all[i];
  }
  if (least == nullptr)
    return std::nullopt;
  for (std::size_t i = 0; i < all.size(); ++i) {
    const bool has = group.members[i].end_seq() == longest;
    if (has && !ends_in_a_wait(group.members[i]))
      return std::nullopt;
    const Counts own = has ? only_mine(all[i], *least) : Counts{};
    if (has ? own.empty() || (!split.own.empty() && own != split.own) : all[i] != *least)
      return std::nullopt;
    if (has)
      split.own = own;
  }
  return split;
}

/// The first call of a line that only some ran.
const Collective* first_of_own(const Split& split) {
  const Member& member = *split.with.front();
  const auto at = std::find_if(
      member.slots.begin(), member.slots.end(),
      [&](const Collective* call) { return split.own.contains(key_of(member, *call)); });
  return *at;
}

RankSet ranks_of(const std::vector<const Member*>& members) {
  RankSet ranks;
  for (const Member* const member : members)
    ranks.insert(member->rank);
  return ranks;
}

}  // namespace

std::optional<Finding> issued_by_some_only(const Run& run, const GroupView& group) {
  const auto split =
      journal_is_whole(run) && some_wait_for_more(group) ? split_of(group) : std::nullopt;
  if (!split)
    return std::nullopt;
  const Member& one = *split->with.front();
  const Collective& first = *first_of_own(*split);
  if (first.seq >= split->without.front()->end_seq())
    return std::nullopt;  // Nothing was taken for it: whose call has no partner shows by itself.
  const RankSet with = ranks_of(split->with), without = ranks_of(split->without);
  RankSet everyone = with;
  for (const Rank rank : without)
    everyone.insert(rank);
  const Collective& last = *one.slots.back();
  Finding finding;
  finding.code = Code::kExtraCall;
  finding.group = group.label();
  finding.op = std::string(history::name_of(last.op));
  finding.seq = last.seq;
  finding.at_ns = last.issued_ns;
  const Attribution blame = blame_minority(group, {with, without}, true);
  finding.confidence = blame.confidence;
  if (blame.culprits == with)
    finding.culprits = with;
  else
    finding.also.push_back(Code::kMissingCall);
  for (const Member& member : group.members) {
    if (!finding.culprits.contains(member.rank))
      finding.affected.insert(member.rank);
  }
  const auto site = site_of(*one.process, first, finding.culprits.empty() ? "peer" : "culprit");
  std::size_t calls = 0;
  for (const auto& [line, count] : split->own)
    calls += count;
  finding.headline = fmt::format(
      "{} issued {}{}{}, and {} never came there: {} found no partner", words(with),
      calls == 1 ? "a call" : fmt::format("{} calls", calls), site ? at_site(*site) : "",
      split->own.size() > 1 ? " and further lines" : "", words(without), group.label(last));
  finding.add(site);
  finding
      .tell(EvidenceKind::kCall, with, "the first of them, #{}, met another call of the same kind",
            first.seq)
      .about(group.place(first.seq));
  finding.tell(EvidenceKind::kCall, everyone, "of no other line did {} issue more calls than {}",
               words(with), words(without));
  finding.cause =
      "a condition that holds on some ranks only leads there; what they sent or gave met the next "
      "call of the others, until none was left";
  return finding;
}

}  // namespace lockstep::checkers
