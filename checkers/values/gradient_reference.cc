#include "checkers/values/gradient_reference.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "checkers/values/reduced_elements.h"
#include "checkers/values/reference_comparison.h"
#include "harness/model/batch_plan.h"
#include "harness/model/group_view.h"
#include "harness/model/observed_values.h"

namespace lockstep::checkers {
namespace {

constexpr std::size_t kLinesMax = 12;
/// What was wrong in the first step in which anything was.
struct Wrong {
  std::vector<std::string> names{};
  std::set<std::string> off{};      ///< Names that differ from the reference.
  std::set<std::string> unequal{};  ///< Names that differ between ranks.
  std::set<std::string>
      local{};  ///< Of those: every rank holds its own gradient, as far as is known.
  std::map<std::string, RankSet> off_on{};
  RankSet ranks{};
  std::map<std::string, std::pair<Distance, NumberRule>> worst{};
  std::uint64_t at_ns{};
};

class Judge {
 public:
  explicit Judge(const Run& run)
      : run_(run),
        world_(RankSet::all(run.plan.world_size)),
        subjects_(
            subjects_of(run, [](const Observation& seen) { return kind_of(seen.name) == "grad"; })),
        comparison_(run, "gradient") {}

  Verdict verdict() {
    Verdict verdict{.name = "gradient-reference"};
    if (subjects_.empty()) {
      verdict.skip("no gradient was observed");
      if (!run_.plan.scenario.empty())  // Of a program on its own no value is observed.
        verdict.outcome = Outcome::kUndecided;
      return verdict;
    }
    std::set<std::int64_t> steps;  // With a reference: the others are not asked about.
    for (const auto& [key, subject] : subjects_) {
      if (has_reference(subject))
        steps.insert(subject.step);
    }
    std::map<std::int64_t, Wrong> wrong;
    for (const auto& [key, subject] : subjects_) {
      if (steps.count(subject.step) > 0)
        look_at(subject, wrong[subject.step]);
    }
    verdict.examined["gradients"] = comparison_.compared();
    if (steps.empty())
      comparison_.not_decided({"no reference was computed"});
    for (auto& [step, what] : wrong) {
      if (what.off.empty() && what.unequal.empty())
        continue;
      if (verdict.findings.empty())
        verdict.findings.push_back(finding(step, what));
      else
        verdict.findings.front().consequences += what.off.size();
    }
    comparison_.conclude(verdict);
    if (!verdict.findings.empty()) {
      verdict.outcome = Outcome::kFail;
      verdict.because({});
    } else if (verdict.reason.empty()) {
      verdict.outcome = Outcome::kPass;
    }
    return verdict;
  }

 private:
  void look_at(const Subject& subject, Wrong& wrong) {
    if (!has_reference(subject)) {
      for (const auto& [rank, observation] : subject.actual) {
        const auto values = comparison_.load(*observation);
        if (values && std::any_of(values->values.begin(), values->values.end(),
                                  [](double v) { return v != 0; }))
          comparison_.not_decided(
              {fmt::format("{} of step {} has no reference", subject.name, subject.step)});
      }
      return;
    }
    if (subject.right != nullptr)
      look_at_equality(subject, wrong);
    for (const Rank rank : taking_part(run_.plan, subject.step)) {
      if (const auto compared = comparison_.compare(subject, rank)) {
        note(subject, rank, *compared, wrong);
        factor(compared->value, compared->reference, squares_[subject.step]);
      }
    }
    comparison_.measure_power(subject);
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
      if (!comparison_.same(*place->second, *local).value_or(false))
        return false;
    }
    return true;
  }

  void note(const Subject& subject, Rank rank, const Compared& compared, Wrong& wrong) {
    const Distance& far = compared.far;
    if (far.ratio <= 1)
      return;
    wrong.at_ns = std::max(wrong.at_ns, subject.actual.at(rank)->at_ns);
    wrong.off.insert(subject.name);
    wrong.off_on[subject.name].insert(rank);
    wrong.ranks.insert(rank);
    auto& worst = wrong.worst[subject.name];
    if (far.ratio > worst.first.ratio)
      worst = {far, compared.rule};
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
        auto x = comparison_.load(*observation);
        const auto reference = comparison_.load(*right);
        if (!x || !reference)
          return std::nullopt;
        for (double& value : x->values)
          value /= k;
        NumberRule rule = number_rule(run_.plan, observation->dtype);
        if (rule == NumberRule::kExact)
          rule = NumberRule::kDouble;
        if (distance(rule, *x, *reference, comparison_.permutations_of(subject, rank)).ratio > 1)
          return std::nullopt;
      }
    }
    return k;
  }

  /// What is too much in all gradients of a step is what the step before had left in them.
  bool keeps_those_before(std::int64_t step) {
    bool any = false;
    for (const auto& [key, subject] : subjects_) {
      if (subject.step != step)
        continue;
      const auto last = subjects_.find({step - 1, std::get<1>(key), subject.name});
      for (const auto& [rank, observation] : subject.actual) {
        const Observation* right = subject.right_for(rank);
        if (right == nullptr || last == subjects_.end() || last->second.actual.count(rank) == 0)
          return false;
        auto x = comparison_.load(*observation);
        const auto earlier = comparison_.load(*last->second.actual.at(rank));
        const auto reference = comparison_.load(*right);
        if (!x || !earlier || !reference || x->values.size() != earlier->values.size())
          return false;
        for (std::size_t i = 0; i < x->values.size(); ++i)
          x->values[i] -= earlier->values[i];
        const NumberRule rule = number_rule(run_.plan, observation->dtype);
        if (distance(rule, *x, *reference, comparison_.permutations_of(subject, rank)).ratio > 1)
          return false;
        any = true;
      }
    }
    return any;
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
      blame(wrong, names, taking_part(run_.plan, step).size(), finding);
    for (const auto& [name, worst] : wrong.worst) {
      if (finding.evidence.size() < kLinesMax)
        finding.tell(EvidenceKind::kValue, wrong.off_on.at(name), "{}",
                     in_words(name, worst.first, worst.second, wrong.off_on.at(name)));
    }
    if (finding.headline.empty())
      finding.headline = headline(code, finding);
    if (code == Code::kGradientWrong && keeps_those_before(step)) {
      finding.confidence = Confidence::kCertain;
      finding.cause = fmt::format(
          "what step {} gave is still in them: they are not zero when a step begins", step - 1);
    }
    return finding;
  }

  Code code_of(std::int64_t step, const Wrong& wrong, Finding& finding) {
    if (!wrong.local.empty() && wrong.local == wrong.unequal) {
      const Reduced reduced = reduced_elements(run_, step);
      if (reduced.known && lacks_exactly(run_.plan, reduced, wrong.local)) {
        finding.confidence = Confidence::kCertain;
        finding.tell(EvidenceKind::kValue, world_,
                     "{} of the model's {} elements were reduced in step {}", reduced.elements,
                     elements_of(run_.plan), step);
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

  void blame(const Wrong& wrong, const std::set<std::string>& names, std::size_t among,
             Finding& finding) const {
    RankSet guilty;
    for (const std::string& name : names) {
      const auto on = wrong.off_on.find(name);
      if (on == wrong.off_on.end())
        return;
      for (const Rank rank : on->second)
        guilty.insert(rank);
    }
    comparison_.blame(guilty, among, finding);
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
  ReferenceComparison comparison_;
  std::map<std::int64_t, Squares> squares_{};
};

}  // namespace

Verdict GradientReference::check(const Job& job) const { return Judge(job.run()).verdict(); }

}  // namespace lockstep::checkers
