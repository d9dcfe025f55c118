#include "checkers/values/batch_statistics.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "checkers/values/reference_comparison.h"
#include "harness/model/group_view.h"
#include "harness/model/observed_values.h"

namespace lockstep::checkers {
namespace {

constexpr std::size_t kLinesMax = 12;
bool is_asked_about(const Observation& seen) {
  const std::string_view kind = kind_of(seen.name);
  return is_phase(seen.phase, "after_forward") && (kind == "norm" || kind == "buffer");
}

/// What was wrong at the first point of the run at which anything was.
struct Wrong {
  const Subject* first{};
  std::vector<std::string> names{};
  std::vector<Evidence> evidence{};
  RankSet ranks{};    ///< That hold a wrong value.
  RankSet holders{};  ///< That hold a value at all: a rank without rows has no say.
  std::uint64_t at_ns{};
  std::uint64_t later{};
};

/// One of the two rules: normalised values, running values.
class Question {
 public:
  Question(const Run& run, Code code, std::string measure)
      : run_(run), code_(code), name_(std::move(measure)), comparison_(run, name_) {}

  void look_at(const Subject& subject) {
    if (!has_reference(subject)) {
      if (!subject.actual.empty())
        comparison_.not_decided({fmt::format("{} at {} of step {} has no reference", subject.name,
                                             subject.phase, subject.step)});
      return;
    }
    RankSet wrong;
    RankSet holders;
    std::optional<Compared> worst;
    for (const Rank rank : RankSet::all(run_.plan.world_size)) {
      auto compared = comparison_.compare(subject, rank);
      if (compared && !(compared->value.values.empty() && compared->reference.values.empty()))
        holders.insert(rank);
      if (!compared || compared->far.ratio <= 1)
        continue;
      wrong.insert(rank);
      if (!worst || compared->far.ratio > worst->far.ratio)
        worst = std::move(compared);
    }
    if (worst)
      note(subject, wrong, holders, *worst);
    comparison_.measure_power(subject, "statistics/");
  }

  void conclude(Verdict& verdict) {
    verdict.examined[name_] = comparison_.compared();
    if (wrong_.first != nullptr)
      verdict.findings.push_back(finding());
    comparison_.conclude(verdict);
  }

 private:
  void note(const Subject& subject, const RankSet& ranks, const RankSet& holders,
            const Compared& worst) {
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
      wrong_.evidence.push_back(evidence_of(EvidenceKind::kValue, ranks, "{}",
                                            in_words(subject.name, worst.far, worst.rule, ranks)));
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
    comparison_.blame(wrong_.ranks, wrong_.holders.size(), finding);
    const std::string which =
        wrong_.names.size() == 1
            ? wrong_.names.front()
            : fmt::format("{} and {} more", wrong_.names.front(), wrong_.names.size() - 1);
    const std::string where =
        finding.culprits.empty() ? "" : fmt::format(" on {}", words(finding.culprits));
    if (code_ == Code::kBatchStatistics)
      finding.headline =
          fmt::format("{} {} in step {}{} otherwise than one process with all ranks' rows", which,
                      wrong_.names.size() == 1 ? "normalises" : "normalise", *finding.step, where);
    else
      finding.headline = fmt::format(
          "{} after the forward of step {}{} {} not what one process has from all ranks' rows",
          which, *finding.step, where, wrong_.names.size() == 1 ? "is" : "are");
    return finding;
  }

  const Run& run_;
  Code code_{};
  std::string name_;
  ReferenceComparison comparison_;
  Wrong wrong_{};
};

}  // namespace

Verdict BatchStatistics::check(const Job& job) const {
  const Run& run = job.run();
  Verdict verdict{.name = std::string(name())};
  if (run.plan.declared("statistics") != "global")
    return verdict.skip("batch statistics over all ranks are not declared");
  const Subjects subjects = subjects_of(run, is_asked_about);
  // Points that have a reference: the others are not asked about.
  std::set<std::pair<std::int64_t, std::string>> points;
  for (const auto& [key, subject] : subjects) {
    if (has_reference(subject))
      points.emplace(subject.step, subject.phase);
  }
  Question normalised(run, Code::kBatchStatistics, "normalised");
  Question running(run, Code::kRunningStatistics, "running values");
  bool any = false;
  for (const auto& [key, subject] : subjects) {
    if (points.count({subject.step, subject.phase}) == 0)
      continue;
    const bool norm = kind_of(subject.name) == "norm";
    // A layer of somebody else's need not have every buffer: to count its batches, say.
    if (!norm && subject.actual.empty() && !run.plan.declared("subject").empty())
      continue;
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
