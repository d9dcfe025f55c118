#include "checkers/values/replica_memory.h"

#include <algorithm>

#include "harness/model/coverage.h"

namespace lockstep::checkers {

Verdict ReplicaMemory::check(const Job& job) const {
  const Run& run = job.run();
  Verdict verdict{.name = std::string(name())};
  double excess = 0;
  for (const Observation& observation : run.observations) {
    if (observation.name != "memory/peak" || observation.role != Role::kRank)
      continue;
    const auto peaks = run.tensor
                           ? run.tensor(observation)
                           : Result<Tensor>(Error{Error::Kind::kMalformedHistory,
                                                  "the values of tensors cannot be read", ""});
    if (!peaks) {
      verdict.reason = incomplete(peaks.error().what);
      return verdict;
    }
    if (peaks->values.size() < 2)
      continue;
    verdict.examined["replicas"] += peaks->values.size();
    excess = std::max(excess, peaks->values.front() - *std::max_element(peaks->values.begin() + 1,
                                                                        peaks->values.end()));
  }
  if (verdict.examined.empty())
    return verdict.skip("no replica's memory was measured");
  verdict.measures.push_back({.name = "excess of replica 0 at its peak",
                              .value = excess,
                              .tolerance = 0,
                              .rule = "figure",
                              .unit = "bytes",
                              .power = std::nullopt});
  verdict.outcome = Outcome::kPass;
  return verdict;
}

}  // namespace lockstep::checkers
