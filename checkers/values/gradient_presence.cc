#include "checkers/values/gradient_presence.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "checkers/values/references.h"
#include "harness/model/batch_plan.h"
#include "harness/model/coverage.h"
#include "harness/model/group_view.h"
#include "harness/model/observed_values.h"

namespace lockstep::checkers {
namespace {

/// What a step has of gradients: by name, on which ranks, and whether one process has it.
struct Step {
  std::map<std::string, RankSet> present{};
  std::set<std::string> referred{};
  RankSet observed{};  ///< Whose state after the step is on record, gradients and all.
  std::uint64_t at_ns{};
};

std::map<std::int64_t, Step> steps_of(const Run& run) {
  std::map<std::int64_t, Step> steps;
  for (const auto& [key, subject] :
       subjects_of(run, [](const Observation& seen) { return kind_of(seen.name) == "grad"; })) {
    Step& step = steps[subject.step];
    const std::string name(tensor_name(subject.name));
    if (subject.right != nullptr || !subject.right_by_rank.empty())
      step.referred.insert(name);
    for (const auto& [rank, observation] : subject.actual) {
      step.present[name].insert(rank);
      step.at_ns = std::max(step.at_ns, observation->at_ns);
    }
  }
  // A host writes parameters and gradients in one file, which is observed in the order of names.
  for (const Observation& seen : run.observations) {
    const auto step = steps.find(seen.step);
    if (step != steps.end() && seen.role == Role::kRank && seen.rank &&
        is_phase(seen.phase, "after_backward") && kind_of(seen.name) == "param")
      step->second.observed.insert(*seen.rank);
  }
  return steps;
}

struct Fault {
  std::string name{}, what{};
  RankSet ranks{};
};

/// `whole`: what is not on record was not there.
std::optional<Fault> fault_of(const std::string& name, const Step& step, const RankSet& among,
                              const std::string& unused, bool whole) {
  const auto at = step.present.find(name);
  const RankSet present = at == step.present.end() ? RankSet{} : at->second;
  const RankSet absent = whole ? among.minus(present) : RankSet{};
  if (step.referred.count(name) > 0) {
    if (absent.empty())
      return std::nullopt;
    return Fault{name, "has no gradient, although it was used", absent};
  }
  if (unused == "none" && !present.empty())
    return Fault{name,
                 "has a gradient although no rank used it: none is declared, and zeros are "
                 "not none",
                 present};
  if (unused == "zero" && !absent.empty())
    return Fault{name, "has no gradient although zeros are declared for what is not used", absent};
  return std::nullopt;
}

Finding finding_of(std::int64_t number, const Step& step, const std::vector<Fault>& faults,
                   const RankSet& among) {
  Finding finding;
  finding.code = Code::kGradientWrong;
  finding.step = number;
  finding.at_ns = step.at_ns;
  finding.affected = among;
  finding.confidence = Confidence::kCertain;
  finding.headline = fmt::format("{} {} (step {}, {})", faults.front().name, faults.front().what,
                                 number, words(faults.front().ranks));
  for (const Fault& fault : faults) {
    finding.names.push_back(fault.name);
    finding.tell(EvidenceKind::kValue, fault.ranks, "{}: {} on {}", fault.name, fault.what,
                 words(fault.ranks));
  }
  return finding;
}

}  // namespace

Verdict GradientPresence::check(const Job& job) const {
  const Run& run = job.run();
  Verdict verdict{.name = std::string(name())};
  const std::string unused = run.plan.declared("unused");
  const bool whole = journal_is_whole(run);
  bool unobserved = !whole;
  for (const auto& [number, step] : steps_of(run)) {
    if (step.referred.empty())
      continue;
    const RankSet taking = taking_part(run.plan, number);
    RankSet among;
    for (const Rank rank : taking) {
      if (step.observed.contains(rank))
        among.insert(rank);
    }
    unobserved |= among != taking;
    std::vector<Fault> faults;
    for (const auto& [parameter, numel] : run.plan.parameters) {
      ++verdict.examined["gradients"];
      if (auto fault = fault_of(parameter, step, among, unused, whole))
        faults.push_back(std::move(*fault));
    }
    if (!faults.empty() && verdict.findings.empty())
      verdict.findings.push_back(finding_of(number, step, faults, taking));
    else if (!faults.empty())
      ++verdict.findings.front().consequences;
  }
  if (!verdict.findings.empty()) {
    verdict.outcome = Outcome::kFail;
  } else if (verdict.examined.empty()) {
    verdict.outcome = Outcome::kSkipped;
    verdict.reason = "no gradient with a reference was observed";
  } else if (unobserved) {
    verdict.reason = "the state of a rank after a step is not on record";
  } else {
    verdict.outcome = Outcome::kPass;
  }
  return verdict;
}

}  // namespace lockstep::checkers
