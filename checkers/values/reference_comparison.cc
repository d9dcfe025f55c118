#include "checkers/values/reference_comparison.h"

#include <fmt/format.h>

#include <algorithm>

#include "checkers/blame/attribution.h"
#include "harness/model/coverage.h"
#include "harness/model/observed_values.h"

namespace lockstep::checkers {
namespace {

constexpr double kPowerMin = 10;
/// No single-process run of the type errs so much more than one rounding.
constexpr double kGrossly = 10;

std::string name_of(const Subject& subject) {
  return fmt::format("{} at {} of step {}", subject.name, subject.phase, subject.step);
}

}  // namespace

std::optional<Compared> ReferenceComparison::compare(const Subject& subject, Rank rank) {
  const Observation* const right = subject.right_for(rank);
  const auto actual = subject.actual.find(rank);
  if (right == nullptr || actual == subject.actual.end()) {
    not_decided({fmt::format("{} was not observed on rank {}{}", name_of(subject), rank.value,
                             right == nullptr ? " as a reference" : "")});
    return std::nullopt;
  }
  auto value = load(*actual->second);
  auto reference = load(*right);
  if (!value || !reference)
    return std::nullopt;
  const std::vector<Tensor>& x1 = permutations_of(subject, rank);
  const NumberRule rule = number_rule(run_.plan, actual->second->dtype);
  const Distance far = distance(rule, *value, *reference, x1);
  ++compared_;
  if (rule == NumberRule::kPrecision && x1.empty() && far.ratio > 1 && far.ratio < kGrossly) {
    not_decided(
        {fmt::format("{} is off by {:.3g} times what rounding alone may do, and no run of its own "
                     "type was computed to compare with",
                     name_of(subject), far.ratio)});
    return std::nullopt;
  }
  if (far.ratio > furthest_ || measure_.rule.empty()) {
    furthest_ = far.ratio;
    measure_.value = far.error;
    measure_.tolerance = far.tolerance;
    measure_.rule = checkers::name_of(rule);
  }
  return Compared{far, rule, std::move(*value), std::move(*reference)};
}

void ReferenceComparison::measure_power(const Subject& subject, std::string_view variants) {
  for (const auto& [variant, observations] : subject.mistakes) {
    if (variant.rfind(variants, 0) != 0)
      continue;
    double& effect = effects_[variant];
    for (const Observation* mistake : observations) {
      const Rank rank = mistake->rank.value_or(Rank{0});
      const Observation* const right = subject.right_for(rank);
      if (right == nullptr || subject.actual.empty())
        continue;
      auto x = load(*mistake);
      const auto reference = load(*right);
      if (!x || !reference)
        continue;
      x->dtype = subject.actual.begin()->second->dtype;  // Tolerated is what the type may err.
      effect = std::max(effect, distance(number_rule(run_.plan, x->dtype), *x, *reference,
                                         permutations_of(subject, rank))
                                    .ratio);
    }
  }
}

std::optional<bool> ReferenceComparison::same(const Observation& value,
                                              const Observation& reference) {
  const auto x = load(value);
  const auto right = load(reference);
  if (!x || !right)
    return std::nullopt;
  return distance(number_rule(run_.plan, value.dtype), *x, *right, {}).ratio <= 1;
}

std::optional<Tensor> ReferenceComparison::load(const Observation& observation) {
  if (!run_.tensor) {
    not_decided(incomplete("the values of tensors cannot be read"));
    return std::nullopt;
  }
  Result<Tensor> tensor = run_.tensor(observation);
  if (!tensor) {
    not_decided(incomplete(tensor.error().what));
    return std::nullopt;
  }
  return std::move(*tensor);
}

const std::vector<Tensor>& ReferenceComparison::permutations_of(const Subject& subject, Rank rank) {
  const bool by_rank = std::any_of(subject.permutations.begin(), subject.permutations.end(),
                                   [](const Observation* each) { return each->rank.has_value(); });
  const std::optional<Rank> rows = by_rank ? std::optional(rank) : std::nullopt;
  if (permuted_ == &subject && permuted_for_ == rows)
    return permutations_;
  permuted_ = &subject;
  permuted_for_ = rows;
  permutations_.clear();
  for (const Observation* permutation : subject.permutations) {
    if (permutation->rank && permutation->rank != rank)
      continue;
    if (auto tensor = load(*permutation))
      permutations_.push_back(std::move(*tensor));
  }
  return permutations_;
}

void ReferenceComparison::not_decided(Reason why) {
  if (undecided_.text.empty())
    undecided_ = std::move(why);
}

void ReferenceComparison::blame(const RankSet& wrong, std::size_t among, Finding& finding) const {
  if (!is_minority(wrong.size(), among) || !run_.journal_complete || !undecided_.text.empty())
    return;
  finding.culprits = wrong;
  finding.affected = RankSet::all(run_.plan.world_size).minus(wrong);
  finding.confidence = Confidence::kLikely;
}

void ReferenceComparison::conclude(Verdict& verdict) {
  for (const auto& [variant, effect] : effects_)
    measure_.power = std::min(measure_.power.value_or(effect), effect);
  if (compared_ > 0)
    verdict.measures.push_back(measure_);
  if (!verdict.reason.empty())
    return;
  if (compared_ == 0 || !undecided_.text.empty())
    verdict.because(undecided_);
  else if (!measure_.power)
    verdict.reason = "power: no mistake's arithmetic was computed on this data";
  else if (*measure_.power < kPowerMin)
    verdict.reason =
        fmt::format("power {:.3g}: a known mistake would hardly show on this data ({})",
                    *measure_.power, measure_.name);
}

bool has_reference(const Subject& subject) {
  return subject.right != nullptr || !subject.right_by_rank.empty();
}

std::string in_words(const std::string& name, const Distance& far, NumberRule rule,
                     const RankSet& ranks) {
  return fmt::format("{}: off by {:.6g} on {}, tolerated {:.3g} ({})", tensor_name(name), far.error,
                     words(ranks), far.tolerance, name_of(rule));
}

}  // namespace lockstep::checkers
