#include "checkers/order/kindred_groups.h"

#include <fmt/format.h>

#include <algorithm>

#include "harness/model/matching.h"

namespace lockstep::checkers {
namespace {

/// What all members that are known issued there; null where they differ or none is.
const Collective* one_call(const GroupView& group, std::uint64_t seq) {
  const Collective* one = nullptr;
  for (const Member& member : group.members) {
    const Collective* const call = member.at(seq);
    if (call != nullptr && one != nullptr && !agree(*one, *call))
      return nullptr;
    one = call == nullptr ? one : call;
  }
  return one;
}

}  // namespace

std::string kind_of_group(const std::string& name) {
  const std::size_t colon = name.rfind(':');
  return colon == std::string::npos ? "" : name.substr(0, colon);
}

bool is_kindred(const GroupView& group, const GroupView& other) {
  return &other != &group && other.size == group.size &&
         kind_of_group(other.name) == kind_of_group(group.name);
}

void blame_by_kindred(const std::vector<GroupView>& groups, const GroupView& group,
                      Finding& finding) {
  if (!finding.culprits.empty() || !finding.seq || kind_of_group(group.name).empty())
    return;
  const Collective* usual = nullptr;
  std::size_t kindred = 0;
  for (const GroupView& other : groups) {
    const Collective* const call =
        is_kindred(group, other) ? one_call(other, *finding.seq) : nullptr;
    if (call == nullptr)
      continue;
    if (usual != nullptr && !agree(*usual, *call))
      return;
    usual = call;
    ++kindred;
  }
  if (kindred < kKindredMin)
    return;
  RankSet usually, otherwise;
  for (const Member& member : group.members) {
    if (const Collective* const call = member.at(*finding.seq))
      (agree(*usual, *call) ? usually : otherwise).insert(member.rank);
  }
  if (usually.empty() || otherwise.empty())
    return;
  finding.culprits = otherwise;
  finding.confidence = Confidence::kLikely;
  finding.affected = finding.affected.minus(otherwise);
  finding
      .tell(EvidenceKind::kCall, usually, "{} other groups of {} issued {} at #{}, as {} did",
            kindred, kind_of_group(group.name), describe(*usual), *finding.seq, words(usually))
      .about(group.place(*finding.seq));
  for (SiteRef& site : finding.sites) {
    if (otherwise.contains(site.rank))
      site.role = "culprit";
  }
}

}  // namespace lockstep::checkers
