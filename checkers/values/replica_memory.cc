#include "checkers/values/replica_memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "harness/model/coverage.h"
#include "harness/model/observed_values.h"

namespace lockstep::checkers {
namespace {

// Of what any other holds; rows that cannot be split evenly, and the batch itself, are less.
constexpr double kShareMost = 0.25;

struct Peak {
  const Observation* seen{};
  double first{}, others{};  ///< Bytes; of the others, what any of them holds.

  [[nodiscard]] double excess() const { return first - others; }
};

Finding finding_of(const Observation& seen, std::string headline) {
  Finding finding;
  finding.code = Code::kMemoryImbalance;
  finding.step = seen.step;
  finding.at_ns = seen.at_ns;
  finding.confidence = Confidence::kCertain;
  finding.affected = RankSet{*seen.rank};
  finding.headline = std::move(headline);
  return finding;
}

Finding first_holds_more(const Peak& peak) {
  Finding finding = finding_of(
      *peak.seen,
      fmt::format("replica 0 holds {:.0f} bytes at its peak in step {}, any other at most {:.0f}",
                  peak.first, peak.seen->step, peak.others));
  finding.tell(
      EvidenceKind::kRule, {},
      "declared is that no replica holds much more than the others; memory counts for the replica "
      "whose forward, or whose part of the backward, it was allocated in");
  return finding;
}

/// Whoever computes holds something: what it allocates is laid to another one, or to nobody.
Finding idle_replica(const Observation& seen, std::size_t replica) {
  return finding_of(
      seen, fmt::format("replica {} was not seen to hold a byte in step {}", replica, seen.step));
}

}  // namespace

Verdict ReplicaMemory::check(const Job& job) const {
  const Run& run = job.run();
  Verdict verdict{.name = std::string(name())};
  Peak worst;
  std::optional<Finding> idle;
  for (const Observation& observation : run.observations) {
    if (observation.name != "memory/peak" || observation.role != Role::kRank)
      continue;
    const auto peaks = values_of(run, observation);
    if (!peaks)
      return verdict.because(incomplete(peaks.error().what));
    if (peaks->values.size() < 2)
      continue;
    verdict.examined["replicas"] += peaks->values.size();
    const auto least = std::min_element(peaks->values.begin(), peaks->values.end());
    if (*least <= 0 && !idle)
      idle = idle_replica(observation, static_cast<std::size_t>(least - peaks->values.begin()));
    const Peak peak{.seen = &observation,
                    .first = peaks->values.front(),
                    .others = *std::max_element(peaks->values.begin() + 1, peaks->values.end())};
    if (worst.seen == nullptr || peak.excess() > worst.excess())
      worst = peak;
  }
  if (verdict.examined.empty())
    return verdict.skip("no replica's memory was measured");
  verdict.measures.push_back({.name = "excess of replica 0 at its peak",
                              .value = std::max(worst.excess(), 0.0),
                              .tolerance = 0,
                              .rule = "figure",
                              .unit = "bytes",
                              .power = std::nullopt});
  verdict.outcome = Outcome::kPass;
  if (idle) {
    verdict.fail(std::move(*idle));
  } else if (worst.seen != nullptr && run.plan.declared("memory") == "balanced" &&
             worst.excess() > kShareMost * worst.others) {
    verdict.fail(first_holds_more(worst));
  }
  return verdict;
}

}  // namespace lockstep::checkers
