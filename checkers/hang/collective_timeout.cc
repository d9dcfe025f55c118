#include "checkers/hang/collective_timeout.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "checkers/hang/stall.h"
#include "harness/history/rank_places.h"
#include "harness/model/call_site.h"
#include "harness/model/error_patterns.h"
#include "harness/model/failure.h"
#include "harness/model/group_view.h"
#include "harness/model/recovery.h"

namespace lockstep::checkers {
namespace {

/// Before any call had failed of those who failed.
std::uint64_t just_before(const Run& run, const std::vector<Failure>& failures) {
  std::uint64_t first_ns = kNeverNs;
  for (const Failure& failure : failures) {
    first_ns = std::min(first_ns, failure.at_ns);
    const Process* const process = current_process(run, failure.rank);
    if (process == nullptr)
      continue;
    for (const Collective& call : process->collectives) {
      if (call.failed && !was_left_behind(*process, call))
        first_ns = std::min(first_ns, call.completed_ns.value_or(*call.returned_ns));
    }
  }
  return first_ns - 1;
}

}  // namespace

std::optional<Finding> given_up(const Run& run) {
  const std::vector<GroupView> groups = group_views(run);
  const std::vector<Failure> failures = failures_of(run, groups);
  if (failures.empty() || !failures.front().after_a_peer || failures.front().waited.empty())
    return std::nullopt;
  const std::uint64_t cutoff_ns = just_before(run, failures);
  RankSet told;
  bool by_pytorch = false;
  for (const Failure& failure : failures) {
    if (says(failure.exception, Says::kWatchdog))
      told.insert(failure.rank);
    by_pytorch = by_pytorch || says(failure.exception, Says::kLimit);
  }
  std::optional<Finding> stalled =
      stall(run, WaitForGraph(run, cutoff_ns), "when the first of those who waited gave up", told);
  const bool is_held =
      stalled && (stalled->code == Code::kStalledOutside || !stalled->culprits.empty());
  if (!is_held || !(by_pytorch || waited_longer_than_ever(run, *stalled, cutoff_ns)))
    return std::nullopt;
  for (const GroupView& group : groups) {
    for (const Member& member : group.members) {
      const Collective* const call = member.at(*stalled->seq);
      if (group.label() != stalled->group)
        continue;
      if (!member.is_complete || (call == nullptr && member.issued > *stalled->seq))
        return std::nullopt;
      if (call == nullptr || call->issued_ns <= cutoff_ns)
        continue;
      if (!by_pytorch)
        return std::nullopt;
      stalled
          ->tell(EvidenceKind::kCall, {member.rank}, "rank {} came to it {:.1f} s after that",
                 member.rank.value, static_cast<double>(call->issued_ns - cutoff_ns) / 1e9)
          .about(group.place(*call))
          .at(site_of(*member.process, *call, "peer"));
    }
  }
  return stalled;
}

}  // namespace lockstep::checkers
