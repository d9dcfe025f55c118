#include "checkers/blame/attribution.h"

#include <algorithm>

#include "checkers/blame/sequence_alignment.h"
#include "harness/history/format.h"
#include "harness/history/recorded.h"

namespace lockstep::checkers {
namespace {

constexpr std::size_t kWindow = 2048;

/// Digests of all members exist and agree for the block that holds `seq`.
bool digests_agree_through(const GroupView& group, std::uint64_t seq) {
  const std::size_t block = seq / history::kDigestBlock;
  for (const Member& member : group.members) {
    const std::vector<std::uint64_t>& digests = member.about().digests;
    if (block >= digests.size() || digests[block] != group.members.front().about().digests[block])
      return false;
  }
  return true;
}

}  // namespace

bool known_before(const GroupView& group, std::uint64_t seq) {
  // Recorders number the calls, and those before were compared while the dumps were read.
  if (group.run_is_whole && is_recorded(*group.members.front().process))
    return true;
  if (!group.run_is_whole || !group.fully_seen())
    return false;
  std::optional<std::uint64_t>
      unknown;  // The last place before `seq` where a member's call is not there.
  for (const Member& member : group.members) {
    for (std::uint64_t s = std::min(seq, member.end_seq()); s-- > member.first_seq;) {
      if (member.at(s) == nullptr) {
        unknown = std::max(unknown.value_or(s), s);
        break;
      }
    }
    const std::uint64_t front =
        std::min(seq, member.slots.empty() ? member.issued : member.first_seq);
    if (front > 0)
      unknown = std::max(unknown.value_or(front - 1), front - 1);
  }
  if (!unknown)
    return true;
  const std::uint64_t block_end = (*unknown / history::kDigestBlock + 1) * history::kDigestBlock;
  return block_end <= seq && digests_agree_through(group, *unknown);
}

Attribution blame_minority(const GroupView& group, const std::vector<RankSet>& classes,
                           bool blamable) {
  const auto size = static_cast<std::size_t>(std::max(group.size, 0));
  if (!blamable || classes.size() < 2)
    return {};
  const auto largest =
      std::max_element(classes.begin(), classes.end(),
                       [](const RankSet& a, const RankSet& b) { return a.size() < b.size(); });
  if (!is_majority(largest->size(), size))
    return {};
  Attribution result{{}, Confidence::kLikely};
  for (auto it = classes.begin(); it != classes.end(); ++it) {
    if (it == largest)
      continue;
    for (const Rank rank : *it)
      result.culprits.insert(rank);
  }
  return result;
}

Attribution blame_unusual_call(const Run& run, const GroupView& group, std::uint64_t seq,
                               bool blamable) {
  if (!blamable)
    return {};
  RankSet broken;
  for (const Member& member : group.members) {
    if (member.at(seq) == nullptr)
      return {};
    const UsualNextCall::Kind at_seq =
        usual_next_call(window_around(run, member, seq, kWindow, 0)).kind;
    if (at_seq == UsualNextCall::Kind::kUnknown)
      return {};
    if (at_seq == UsualNextCall::Kind::kBroken)
      broken.insert(member.rank);
  }
  if (broken.size() != 1)
    return {};
  return {broken, Confidence::kLikely};
}

}  // namespace lockstep::checkers
