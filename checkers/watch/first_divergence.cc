#include "checkers/watch/first_divergence.h"

#include <algorithm>
#include <vector>

#include "checkers/watch/finite_values.h"
#include "checkers/watch/replica_drift.h"

namespace lockstep::checkers {

std::optional<std::string> first_divergence(const Run& live) {
  const bool watched =
      std::any_of(live.processes.begin(), live.processes.end(),
                  [](const Process& process) { return process.watched != nullptr; });
  if (!watched)
    return std::nullopt;
  const Job job(live);
  std::vector<Finding> found = ReplicaDrift().check(job).findings;
  const std::vector<Finding> more = FiniteValues().check(job).findings;
  found.insert(found.end(), more.begin(), more.end());
  std::erase_if(found, [](const Finding& finding) { return finding.severity != Severity::kError; });
  const auto first =
      std::min_element(found.begin(), found.end(),
                       [](const Finding& a, const Finding& b) { return a.at_ns < b.at_ns; });
  return first == found.end() ? std::nullopt : std::optional(first->headline);
}

}  // namespace lockstep::checkers
