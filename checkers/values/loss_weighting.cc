#include "checkers/values/loss_weighting.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "checkers/values/tolerance.h"

namespace lockstep::checkers {
namespace {

constexpr double kPowerMin = 10;

/// What one step's loss is, should be, and would be with the weights that were not declared.
struct Step {
  std::optional<double> actual{}, right{}, other{};
  std::uint64_t at_ns{};
  bool repeated{};  ///< Micro-batches: each has a loss of its own.
};

std::string other_weights(const std::string& declared) {
  return declared == "global_sample_mean" ? "mean_of_rank_means" : "global_sample_mean";
}

std::string meaning(const std::string& gradient) {
  return gradient == "global_sample_mean" ? "the mean over all samples"
                                          : "the plain mean of the parts' means";
}

std::string weights(const std::string& gradient) {
  return gradient == "global_sample_mean" ? "its share of the samples" : "the same";
}

std::optional<double> value_of(const Run& run, const Observation& observation) {
  if (!run.tensor)
    return std::nullopt;
  const Result<Tensor> tensor = run.tensor(observation);
  if (!tensor || tensor->values.size() != 1)
    return std::nullopt;
  return tensor->values.front();
}

std::map<std::int64_t, Step> steps_of(const Run& run, const std::string& declared) {
  std::map<std::int64_t, Step> steps;
  for (const Observation& observation : run.observations) {
    if (observation.name != "loss")
      continue;
    Step& step = steps[observation.step];
    if (observation.role == Role::kRank) {
      step.repeated |= step.actual.has_value();
      step.actual = value_of(run, observation);
      step.at_ns = observation.at_ns;
    } else if (observation.role == Role::kReference && observation.variant.empty()) {
      step.right = value_of(run, observation);
    } else if (observation.role == Role::kReference &&
               observation.variant == other_weights(declared)) {
      step.other = value_of(run, observation);
    }
  }
  return steps;
}

double tolerance_at(double reference) { return 1e-10 * (std::abs(reference) + 1); }

Finding wrong_weights(std::int64_t number, const Step& step, const std::string& declared) {
  Finding finding;
  finding.code = Code::kLossWeighting;
  finding.step = number;
  finding.at_ns = step.at_ns;
  finding.affected = {Rank{0}};
  finding.confidence = Confidence::kCertain;
  finding.names = {"loss"};
  finding.headline = fmt::format("the loss of step {} is {}, declared is {}", number,
                                 meaning(other_weights(declared)), meaning(declared));
  finding.tell(EvidenceKind::kValue, finding.affected, "loss {:.12g}; as declared it is {:.12g}",
               *step.actual, *step.right);
  finding.tell(EvidenceKind::kValue, finding.affected, "a part weighs {}, declared is {}",
               weights(other_weights(declared)), weights(declared));
  return finding;
}

}  // namespace

Verdict LossWeighting::check(const Job& job) const {
  const Run& run = job.run();
  Verdict verdict{.name = std::string(name())};
  const std::string declared = run.plan.declared("gradient");
  if (run.plan.world_size != 1 || declared.empty() || run.plan.dtype != "float64")
    return verdict.skip(
        "the losses of several parts of one process's batch, in float64, are looked at");
  double apart = 0;
  double tolerance = 0;
  bool told_apart = false;
  for (const auto& [number, step] : steps_of(run, declared)) {
    if (step.repeated || !step.actual || !step.right || !step.other)
      continue;
    told_apart = true;
    const double difference = std::abs(*step.other - *step.right);
    if (difference >= apart) {
      apart = difference;
      tolerance = tolerance_at(*step.right);
    }
    ++verdict.examined["losses"];
    const bool right = std::abs(*step.actual - *step.right) <= tolerance_at(*step.right);
    const bool other = std::abs(*step.actual - *step.other) <= tolerance_at(*step.other);
    if (right)
      continue;
    if (!other)
      verdict.reason = fmt::format("the loss of step {} is neither of the two means", number);
    else if (verdict.findings.empty())
      verdict.findings.push_back(wrong_weights(number, step, declared));
  }
  if (told_apart)
    verdict.measures.push_back({.name = "mean over parts less mean over samples",
                                .value = apart,
                                .tolerance = 0,
                                .rule = "figure",
                                .unit = "",
                                .power = std::nullopt});
  if (!verdict.findings.empty()) {
    verdict.outcome = Outcome::kFail;
  } else if (!told_apart) {
    verdict.skip("the parts are of one size, or were not observed: both means are one");
  } else if (verdict.reason.empty() && apart < kPowerMin * tolerance) {
    verdict.reason = "the two means are too close to be told apart on this data";
  } else if (verdict.reason.empty()) {
    verdict.outcome = Outcome::kPass;
  }
  return verdict;
}

}  // namespace lockstep::checkers
