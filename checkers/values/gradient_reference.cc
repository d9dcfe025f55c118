#include "checkers/values/gradient_reference.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>

#include "checkers/values/reduced_elements.h"
#include "checkers/values/references.h"
#include "checkers/values/tolerance.h"
#include "harness/model/batch_plan.h"
#include "harness/model/coverage.h"
#include "harness/model/group_view.h"
#include "harness/model/observed_values.h"

namespace lockstep::checkers {
namespace {

constexpr std::size_t kLinesMax = 12;
constexpr double kPowerMin = 10;
constexpr double kGrossly =
    10;  // No single-process run of the type errs so much more than one rounding.
constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// What was wrong in the first step in which anything was.
struct Wrong {
  std::vector<std::string> names{};
  std::set<std::string> off{};      ///< Names that differ from the reference.
  std::set<std::string> unequal{};  ///< Names that differ between ranks.
  std::set<std::string>
      local{};  ///< Of those: every rank holds its own gradient, as far as is known.
  std::map<std::string, RankSet> off_on{};
  RankSet ranks{};
  std::map<std::string, Distance> worst{};
  std::uint64_t at_ns{};
};

class Judge {
 public:
  explicit Judge(const Run& run)
      : run_(run),
        world_(RankSet::all(run.plan.world_size)),
        subjects_(subjects_of(
            run, [](const Observation& seen) { return kind_of(seen.name) == "grad"; })) {}

  Verdict verdict() {
    Verdict verdict{.name = "gradient-reference"};
    if (subjects_.empty()) {
      if (run_.plan.scenario.empty())  // Of a program on its own no value is observed.
        verdict.outcome = Outcome::kSkipped;
      verdict.reason = "no gradient was observed";
      return verdict;
    }
    std::set<std::int64_t> steps;  // With a reference: the others are not asked about.
    for (const auto& [key, subject] : subjects_) {
      if (subject.right != nullptr || !subject.right_by_rank.empty())
        steps.insert(subject.step);
    }
    std::map<std::int64_t, Wrong> wrong;
    for (const auto& [key, subject] : subjects_) {
      if (steps.count(subject.step) > 0)
        look_at(subject, wrong[subject.step]);
    }
    verdict.examined["gradients"] = compared_;
    if (steps.empty() && undecided_.empty())
      undecided_ = "no reference was computed";
    add_measure(verdict);
    for (auto& [step, what] : wrong) {
      if (what.off.empty() && what.unequal.empty())
        continue;
      if (verdict.findings.empty())
        verdict.findings.push_back(finding(step, what));
      else
        verdict.findings.front().consequences += what.off.size();
    }
    decide(verdict);
    return verdict;
  }

 private:
  void not_decided(std::string why) {
    if (undecided_.empty())
      undecided_ = std::move(why);
  }

  std::optional<Tensor> load(const Observation& observation) {
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

  void look_at(const Subject& subject, Wrong& wrong) {
    if (subject.right == nullptr && subject.right_by_rank.empty()) {
      for (const auto& [rank, observation] : subject.actual) {
        const auto values = load(*observation);
        if (values && std::any_of(values->values.begin(), values->values.end(),
                                  [](double v) { return v != 0; }))
          not_decided(fmt::format("{} of step {} has no reference", subject.name, subject.step));
      }
      return;
    }
    std::vector<Tensor> x1;
    for (const Observation* permutation : subject.permutations) {
      if (auto tensor = load(*permutation))
        x1.push_back(std::move(*tensor));
    }
    if (subject.right != nullptr)
      look_at_equality(subject, wrong);
    for (const Rank rank : taking_part(run_.plan, subject.step)) {
      const Observation* right = subject.right_for(rank);
      const auto place = subject.actual.find(rank);
      if (right == nullptr || place == subject.actual.end()) {
        not_decided(fmt::format("{} of step {} was not observed on rank {}{}", subject.name,
                                subject.step, rank.value,
                                right == nullptr ? " as a reference" : ""));
        continue;
      }
      const auto x = load(*place->second);
      const auto reference = load(*right);
      if (!x || !reference)
        continue;
      rule_ = number_rule(run_.plan, place->second->dtype);
      const Distance far = distance(rule_, *x, *reference, x1);
      ++compared_;
      if (rule_ == NumberRule::kPrecision && x1.empty() && far.ratio > 1 && far.ratio < kGrossly) {
        not_decided(fmt::format(
            "{} of step {} is off by {:.3g} times what rounding alone may do, and no run "
            "of its own type was computed to compare with",
            subject.name, subject.step, far.ratio));
        continue;
      }
      note(subject, rank, *place->second, far, wrong);
      factor(*x, *reference, squares_[subject.step]);
    }
    measure_power(subject, x1);
  }

  /// Who must hold one gradient must hold it bit for bit.
  void look_at_equality(const Subject& subject, Wrong& wrong) {
    const Observation* first = nullptr;
    for (const auto& [rank, observation] : subject.actual) {
      if (first == nullptr)
        first = observation;
      else if (!identical(*first, *observation))
        wrong.unequal.insert(subject.name);
      wrong.at_ns = std::max(wrong.at_ns, observation->at_ns);
    }
    if (wrong.unequal.count(subject.name) > 0 && is_local(subject))
      wrong.local.insert(subject.name);
  }

  /// Every rank holds its own gradient ("local" was computed for comparison), or nothing says
  /// otherwise.
  bool is_local(const Subject& subject) {
    const auto own = subject.mistakes.find("local");
    if (own == subject.mistakes.end())
      return true;
    for (const Observation* local : own->second) {
      const auto place = local->rank ? subject.actual.find(*local->rank) : subject.actual.end();
      if (place == subject.actual.end())
        return false;
      const auto x = load(*place->second);
      const auto expected = load(*local);
      if (!x || !expected ||
          distance(number_rule(run_.plan, place->second->dtype), *x, *expected, {}).ratio > 1)
        return false;
    }
    return true;
  }

  void note(const Subject& subject, Rank rank, const Observation& actual, const Distance& far,
            Wrong& wrong) {
    if (far.ratio > nearest_.ratio || nearest_.tolerance == 0) {
      nearest_ = far;
      nearest_rule_ = rule_;
    }
    if (far.ratio <= 1)
      return;
    wrong.at_ns = std::max(wrong.at_ns, actual.at_ns);
    wrong.off.insert(subject.name);
    wrong.off_on[subject.name].insert(rank);
    wrong.ranks.insert(rank);
    Distance& worst = wrong.worst[subject.name];
    if (far.ratio > worst.ratio)
      worst = far;
  }

  /// Least squares: x = factor * reference over everything compared in one step.
  struct Squares {
    double products{}, squares{};
  };
  static void factor(const Tensor& x, const Tensor& reference, Squares& squares) {
    if (x.values.size() != reference.values.size())
      return;
    for (std::size_t i = 0; i < x.values.size(); ++i) {
      squares.products += x.values[i] * reference.values[i];
      squares.squares += reference.values[i] * reference.values[i];
    }
  }

  /// The one factor by which everything in this step is off, if there is one.
  std::optional<double> uniform_factor(std::int64_t step) {
    const Squares& sums = squares_[step];
    const double k = sums.squares > 0 ? sums.products / sums.squares : 1;
    if (!std::isfinite(k) || std::abs(k - 1) < 1e-3)
      return std::nullopt;
    for (const auto& [key, subject] : subjects_) {
      if (subject.step != step)
        continue;
      for (const auto& [rank, observation] : subject.actual) {
        const Observation* right = subject.right_for(rank);
        if (right == nullptr)
          continue;
        auto x = load(*observation);
        const auto reference = load(*right);
        if (!x || !reference)
          return std::nullopt;
        for (double& value : x->values)
          value /= k;
        const bool exact = number_rule(run_.plan, observation->dtype) == NumberRule::kExact;
        std::vector<Tensor> x1;
        for (const Observation* permutation : subject.permutations) {
          if (auto tensor = load(*permutation))
            x1.push_back(std::move(*tensor));
        }
        const NumberRule rule =
            exact ? NumberRule::kDouble : number_rule(run_.plan, observation->dtype);
        if (distance(rule, *x, *reference, x1).ratio > 1)
          return std::nullopt;
      }
    }
    return k;
  }

  void measure_power(const Subject& subject, const std::vector<Tensor>& x1) {
    for (const auto& [variant, observations] : subject.mistakes) {
      double& effect = effects_[variant];
      for (const Observation* mistake : observations) {
        const Observation* right =
            mistake->rank ? subject.right_for(*mistake->rank) : subject.right;
        if (right == nullptr)
          continue;
        auto x = load(*mistake);
        const auto reference = load(*right);
        if (!x || !reference)
          continue;
        if (!subject.actual.empty())
          x->dtype =
              subject.actual.begin()->second->dtype;  // Tolerated is what the tested type may err.
        effect = std::max(effect, distance(rule_, *x, *reference, x1).ratio);
      }
    }
  }

  void add_measure(Verdict& verdict) {
    if (compared_ == 0)
      return;
    Measure measure{.name = "gradient",
                    .value = nearest_.error,
                    .tolerance = nearest_.tolerance,
                    .rule = name_of(nearest_rule_),
                    .unit = "",
                    .power = std::nullopt};
    for (const auto& [variant, effect] : effects_)
      measure.power = std::min(measure.power.value_or(kInfinity), effect);
    verdict.measures.push_back(measure);
  }

  void decide(Verdict& verdict) const {
    const bool measured = !verdict.measures.empty() && verdict.measures.front().power.has_value();
    const double power = measured ? verdict.measures.front().power.value_or(0) : 0;
    if (!verdict.findings.empty())
      verdict.outcome = Outcome::kFail;
    else if (!undecided_.empty())
      verdict.reason = undecided_;
    else if (!measured)
      verdict.reason = "power: no mistake's arithmetic was computed on this data";
    else if (power < kPowerMin)
      verdict.reason =
          fmt::format("power {:.3g}: a known mistake would hardly show on this data", power);
    else
      verdict.outcome = Outcome::kPass;
  }

  Finding finding(std::int64_t step, const Wrong& wrong) {
    Finding finding;
    finding.step = step;
    finding.at_ns = wrong.at_ns;
    finding.affected = world_;
    Code code = code_of(step, wrong, finding);
    finding.code = code;
    const std::set<std::string>& names = code == Code::kOutsideBuckets            ? wrong.local
                                         : code == Code::kGradientNotSynchronised ? wrong.unequal
                                                                                  : wrong.off;
    for (const std::string& name : names)
      finding.names.emplace_back(tensor_name(name));
    if (code == Code::kGradientWrong || code == Code::kGradientNotSynchronised)
      blame(wrong, names, taking_part(run_.plan, step), finding);
    for (const auto& [name, worst] : wrong.worst) {
      if (finding.evidence.size() < kLinesMax)
        finding.evidence.push_back(fmt::format(
            "{}: off by {:.6g} on {}, tolerated {:.3g} ({})", tensor_name(name), worst.error,
            words(wrong.off_on.at(name)), worst.tolerance, name_of(rule_)));
    }
    if (finding.headline.empty())
      finding.headline = headline(code, finding);
    return finding;
  }

  Code code_of(std::int64_t step, const Wrong& wrong, Finding& finding) {
    if (!wrong.local.empty() && wrong.local == wrong.unequal) {
      const Reduced reduced = reduced_elements(run_, step);
      if (reduced.known && lacks_exactly(run_.plan, reduced, wrong.local)) {
        finding.confidence = Confidence::kCertain;
        finding.evidence.push_back(
            fmt::format("{} of the model's {} elements were reduced in step {}", reduced.elements,
                        elements_of(run_.plan), step));
        return Code::kOutsideBuckets;
      }
    }
    if (!wrong.unequal.empty())
      return Code::kGradientNotSynchronised;
    if (const auto k = uniform_factor(step)) {
      finding.confidence = Confidence::kCertain;
      finding.headline = fmt::format("all gradients of step {} are {:.6g} times the reference{}",
                                     step, *k, meaning_of(*k));
      return Code::kUniformFactor;
    }
    return Code::kGradientWrong;
  }

  [[nodiscard]] std::string meaning_of(double k) const {
    const auto world = static_cast<double>(run_.plan.world_size);
    const auto is = [&](double factor) { return std::abs(k - factor) < 1e-3 * factor; };
    if (is(world))
      return world == 2 ? ": summed instead of averaged, or divided by one rank less"
                        : ": summed instead of averaged";
    if (world > 1 && is(world / (world - 1)))
      return ": divided by one rank less than there are";
    if (is(1 / world))
      return ": divided by the number of ranks once too often";
    return "";
  }

  void blame(const Wrong& wrong, const std::set<std::string>& names, const RankSet& among,
             Finding& finding) const {
    // Wrong on a minority, against a strict majority of three or more that is right.
    RankSet guilty;
    for (const std::string& name : names) {
      const auto on = wrong.off_on.find(name);
      if (on == wrong.off_on.end())
        return;
      for (const Rank rank : on->second)
        guilty.insert(rank);
    }
    if (among.size() < 3 || 2 * guilty.size() >= among.size() || !run_.journal_complete ||
        !undecided_.empty())
      return;
    finding.culprits = guilty;
    finding.affected = world_.minus(guilty);
    finding.confidence = Confidence::kLikely;
  }

  [[nodiscard]] static std::string headline(Code code, const Finding& finding) {
    const std::string which = finding.names.size() == 1
                                  ? fmt::format("the gradient of {}", finding.names.front())
                                  : fmt::format("the gradients of {} and {} more",
                                                finding.names.front(), finding.names.size() - 1);
    const char* verb = finding.names.size() == 1 ? "is" : "are";
    const std::string where =
        finding.culprits.empty() ? "" : fmt::format(" on {}", words(finding.culprits));
    if (code == Code::kOutsideBuckets)
      return fmt::format("{} {} never reduced: every rank keeps its own in step {}", which, verb,
                         *finding.step);
    if (code == Code::kGradientNotSynchronised)
      return fmt::format("{} {} not the same on all ranks in step {}{}", which, verb, *finding.step,
                         where);
    return fmt::format("{} {} not what one process computes in step {}{}", which, verb,
                       *finding.step, where);
  }

  const Run& run_;
  RankSet world_;
  Subjects subjects_;
  NumberRule rule_{};
  NumberRule nearest_rule_{};
  std::string undecided_{};
  std::uint64_t compared_{};
  Distance nearest_{};
  std::map<std::int64_t, Squares> squares_{};
  std::map<std::string, double> effects_{};
};

}  // namespace

Verdict GradientReference::check(const Job& job) const { return Judge(job.run()).verdict(); }

}  // namespace lockstep::checkers
