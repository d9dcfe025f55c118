#include "checkers/values/batch_statistics.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <set>

#include "checkers/values/references.h"
#include "checkers/values/tolerance.h"
#include "harness/model/coverage.h"
#include "harness/model/group_view.h"
#include "harness/model/observed_values.h"

namespace lockstep::checkers {
namespace {

constexpr std::size_t kLinesMax = 12;
constexpr double kPowerMin = 10;
constexpr double kGrossly = 10;  // Beyond this, rounding of no single-process run can be the cause.
constexpr double kInfinity = std::numeric_limits<double>::infinity();

bool is_asked_about(const Observation& seen) {
  const std::string_view kind = kind_of(seen.name);
  return is_phase(seen.phase, "after_forward") && (kind == "norm" || kind == "buffer");
}

/// What was wrong at the first point of the run at which anything was.
struct Wrong {
  const Subject* first{};
  std::vector<std::string> names{};
  std::vector<std::string> evidence{};
  RankSet ranks{};    ///< That hold a wrong value.
  RankSet holders{};  ///< That hold a value at all: a rank without rows has no say.
  std::uint64_t at_ns{};
  std::uint64_t later{};
};

/// One of the two rules: normalised values, running values.
class Question {
 public:
  Question(const Run& run, Code code, std::string measure)
      : run_(run), code_(code), measure_{.name = std::move(measure)} {}

  void look_at(const Subject& subject) {
    const RankSet world = RankSet::all(run_.plan.world_size);
    if (subject.right == nullptr && subject.right_by_rank.empty()) {
      if (!subject.actual.empty())
        not_decided(subject, "has no reference");
      return;
    }
    RankSet wrong;
    RankSet holders;
    Distance worst{};
    for (const Rank rank : world) {
      const auto far = distance_on(subject, rank, holders);
      if (!far || far->ratio <= 1)
        continue;
      wrong.insert(rank);
      if (far->ratio > worst.ratio)
        worst = *far;
    }
    if (!wrong.empty())
      note(subject, wrong, holders, worst);
    measure_power(subject);
  }

  void conclude(Verdict& verdict) {
    verdict.examined[measure_.name] = compared_;
    if (compared_ > 0) {
      for (const auto& [variant, effect] : effects_)
        measure_.power = std::min(measure_.power.value_or(kInfinity), effect);
      verdict.measures.push_back(measure_);
    }
    if (wrong_.first != nullptr)
      verdict.findings.push_back(finding());
    if (compared_ == 0 || !undecided_.empty()) {
      if (verdict.reason.empty())
        verdict.reason = undecided_;
    } else if (!measure_.power) {
      verdict.reason = "power: no mistake's arithmetic was computed on this data";
    } else if (*measure_.power < kPowerMin) {
      verdict.reason = fmt::format("power {:.3g}: a known mistake would hardly show in {}",
                                   *measure_.power, measure_.name);
    }
  }

 private:
  void not_decided(const Subject& subject, const std::string& why) {
    if (undecided_.empty())
      undecided_ =
          fmt::format("{} at {} of step {} {}", subject.name, subject.phase, subject.step, why);
  }

  std::optional<Tensor> load(const Subject& subject, const Observation& observation) {
    if (run_.tensor) {
      if (Result<Tensor> tensor = run_.tensor(observation))
        return std::move(*tensor);
    }
    not_decided(subject, incomplete("its values cannot be read"));
    return std::nullopt;
  }

  /// Of runs of the tested type, those of this rank's rows.
  std::vector<Tensor> permutations_of(const Subject& subject, Rank rank) {
    std::vector<Tensor> x1;
    for (const Observation* permutation : subject.permutations) {
      if (permutation->rank && *permutation->rank != rank)
        continue;
      if (auto tensor = load(subject, *permutation))
        x1.push_back(std::move(*tensor));
    }
    return x1;
  }

  std::optional<Distance> distance_on(const Subject& subject, Rank rank, RankSet& holders) {
    const Observation* right = subject.right_for(rank);
    const auto actual = subject.actual.find(rank);
    if (right == nullptr || actual == subject.actual.end()) {
      not_decided(subject, fmt::format("was not observed on rank {}{}", rank.value,
                                       right == nullptr ? " as a reference" : ""));
      return std::nullopt;
    }
    const auto x = load(subject, *actual->second);
    const auto reference = load(subject, *right);
    if (!x || !reference)
      return std::nullopt;
    if (!x->values.empty() || !reference->values.empty())
      holders.insert(rank);
    const std::vector<Tensor> x1 = permutations_of(subject, rank);
    const NumberRule rule = number_rule(run_.plan, actual->second->dtype);
    const Distance far = distance(rule, *x, *reference, x1);
    ++compared_;
    if (rule == NumberRule::kPrecision && x1.empty() && far.ratio > 1 && far.ratio < kGrossly) {
      not_decided(subject,
                  "is off by what rounding may do, and no run of its own type was computed");
      return std::nullopt;
    }
    if (far.ratio > nearest_ || measure_.rule.empty()) {
      nearest_ = far.ratio;
      measure_.value = far.error;
      measure_.tolerance = far.tolerance;
      measure_.rule = name_of(rule);
    }
    return far;
  }

  void measure_power(const Subject& subject) {
    for (const auto& [variant, observations] : subject.mistakes) {
      if (variant.rfind("statistics/", 0) != 0)
        continue;
      double& effect = effects_[variant];
      for (const Observation* mistake : observations) {
        const Rank rank = mistake->rank.value_or(Rank{0});
        const Observation* right = subject.right_for(rank);
        const auto actual = subject.actual.find(rank);
        if (right == nullptr || actual == subject.actual.end())
          continue;
        auto x = load(subject, *mistake);
        const auto reference = load(subject, *right);
        if (!x || !reference)
          continue;
        x->dtype = actual->second->dtype;  // Tolerated is what the tested type may err.
        effect = std::max(effect, distance(number_rule(run_.plan, x->dtype), *x, *reference,
                                           permutations_of(subject, rank))
                                      .ratio);
      }
    }
  }

  void note(const Subject& subject, const RankSet& ranks, const RankSet& holders,
            const Distance& worst) {
    if (wrong_.first == nullptr)
      wrong_.first = &subject;
    if (wrong_.first->step != subject.step || wrong_.first->phase != subject.phase) {
      ++wrong_.later;
      return;
    }
    wrong_.names.emplace_back(tensor_name(subject.name));
    for (const Rank rank : ranks) {
      wrong_.ranks.insert(rank);
      wrong_.at_ns = std::max(wrong_.at_ns, subject.actual.at(rank)->at_ns);
    }
    for (const Rank rank : holders)
      wrong_.holders.insert(rank);
    if (wrong_.evidence.size() < kLinesMax)
      wrong_.evidence.push_back(fmt::format("{}: off by {:.6g} on {}, tolerated {:.3g} ({})",
                                            tensor_name(subject.name), worst.error, words(ranks),
                                            worst.tolerance, measure_.rule));
  }

  [[nodiscard]] Finding finding() const {
    Finding finding;
    finding.code = code_;
    finding.step = wrong_.first->step;
    finding.at_ns = wrong_.at_ns;
    finding.names = wrong_.names;
    finding.evidence = wrong_.evidence;
    finding.consequences = wrong_.later;
    finding.affected = RankSet::all(run_.plan.world_size);
    // Wrong on a minority, against a strict majority of three or more that is right.
    const bool minority =
        wrong_.holders.size() >= 3 && 2 * wrong_.ranks.size() < wrong_.holders.size();
    if (minority && run_.journal_complete && undecided_.empty()) {
      finding.culprits = wrong_.ranks;
      finding.affected = finding.affected.minus(wrong_.ranks);
      finding.confidence = Confidence::kLikely;
    }
    const std::string which =
        wrong_.names.size() == 1
            ? wrong_.names.front()
            : fmt::format("{} and {} more", wrong_.names.front(), wrong_.names.size() - 1);
    const std::string where =
        finding.culprits.empty() ? "" : fmt::format(" on {}", words(finding.culprits));
    if (code_ == Code::kBatchStatistics)
      finding.headline =
          fmt::format("{} normalises in step {}{} otherwise than one process with all ranks' rows",
                      which, *finding.step, where);
    else
      finding.headline = fmt::format(
          "{} after the forward of step {}{} {} not what one process has from all ranks' rows",
          which, *finding.step, where, wrong_.names.size() == 1 ? "is" : "are");
    return finding;
  }

  const Run& run_;
  Code code_{};
  Measure measure_;
  std::string undecided_{};
  std::uint64_t compared_{};
  double nearest_{};
  std::map<std::string, double> effects_{};
  Wrong wrong_{};
};

}  // namespace

Verdict BatchStatistics::check(const Job& job) const {
  const Run& run = job.run();
  Verdict verdict{.name = std::string(name())};
  const auto declared = run.plan.contract.find("statistics");
  if (declared == run.plan.contract.end() || declared->second != "global") {
    verdict.outcome = Outcome::kSkipped;
    verdict.reason = "batch statistics over all ranks are not declared";
    return verdict;
  }
  const Subjects subjects = subjects_of(run, is_asked_about);
  // Points that have a reference: the others are not asked about.
  std::set<std::pair<std::int64_t, std::string>> points;
  for (const auto& [key, subject] : subjects) {
    if (subject.right != nullptr || !subject.right_by_rank.empty())
      points.emplace(subject.step, subject.phase);
  }
  Question normalised(run, Code::kBatchStatistics, "normalised");
  Question running(run, Code::kRunningStatistics, "running values");
  bool any = false;
  for (const auto& [key, subject] : subjects) {
    if (points.count({subject.step, subject.phase}) == 0)
      continue;
    const bool norm = kind_of(subject.name) == "norm";
    any |= norm;
    (norm ? normalised : running).look_at(subject);
  }
  normalised.conclude(verdict);
  running.conclude(verdict);
  if (!verdict.findings.empty())
    verdict.outcome = Outcome::kFail;
  else if (!any)
    verdict.reason =
        subjects.empty() ? "no batch normalisation was observed" : "no reference was computed";
  else if (verdict.reason.empty())
    verdict.outcome = Outcome::kPass;
  return verdict;
}

}  // namespace lockstep::checkers
