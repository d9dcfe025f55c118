#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "checkers/judge.h"
#include "scenarios/suite.h"

namespace lockstep {
namespace {

bool names_site(const Finding& finding, const std::string& expected) {
  return std::any_of(finding.sites.begin(), finding.sites.end(), [&](const SiteRef& site) {
    return fmt::format("{}:{}", site.file, site.line) == expected;
  });
}

bool names_tensor(const Finding& finding, std::string_view expected) {
  if (expected.empty() || expected == "*")
    return expected.empty() || !finding.names.empty();
  return std::find(finding.names.begin(), finding.names.end(), expected) != finding.names.end();
}

RankSet expected_culprits(const Case& cell) {
  if (cell.mutant->culprits == mutants::Culprits::kNone)
    return {};
  return {Rank{std::stoi(cell.option("rank", "0"))}};
}

std::vector<std::string> codes_of(const std::vector<Finding>& findings) {
  std::vector<std::string> codes;
  for (const Finding& finding : findings)
    codes.push_back(finding.code);
  return codes;
}

// A mutant is caught by exactly one finding: its code, its culprits, its line, its
// tensor. One more is a false
// alarm.
MutantResult judge_mutant(const Case& cell, const std::vector<Finding>& findings,
                          std::string& why_not) {
  MutantResult result;
  result.name = std::string(cell.mutant->name);
  result.expected = std::string(cell.mutant->code);
  result.expected_culprits = expected_culprits(cell);
  result.got = codes_of(findings);
  if (!findings.empty())
    result.culprits = findings.front().culprits;
  if (findings.size() != 1 || findings.front().code != result.expected) {
    why_not = fmt::format(
        "expected {}, got {}", result.expected,
        result.got.empty() ? "nothing" : fmt::format("{}", fmt::join(result.got, ", ")));
  } else if (result.culprits != result.expected_culprits) {
    why_not = fmt::format("expected culprits {}, got {}", result.expected_culprits.to_string(),
                          result.culprits.to_string());
  } else if (!cell.mutant->site.empty() && !names_site(findings.front(), cell.expected_site)) {
    why_not = fmt::format("no site of the finding is {} (SITE: {})",
                          cell.expected_site.empty() ? "the marked line, whose source is not here"
                                                     : cell.expected_site,
                          cell.mutant->site);
  } else if (!names_tensor(findings.front(), cell.mutant->tensor)) {
    why_not = fmt::format("expected tensor {}, got {}", cell.mutant->tensor,
                          findings.front().names.empty()
                              ? "none"
                              : fmt::format("{}", fmt::join(findings.front().names, ", ")));
  } else {
    result.caught = true;
  }
  return result;
}

// Why the implementation's case cannot be called passed although nothing was found. Empty if it
// can.
std::string not_proven(const Case& cell, const Run& run, const std::vector<Verdict>& verdicts) {
  for (const Acted& acted : run.acted) {
    if (acted.action == "ended-early")
      return acted.reason;
  }
  for (const Request& request : run.requests) {
    if (request.outcome == "unsupported")
      return fmt::format("a host does not support `{}`: {}", request.message, request.text);
  }
  std::vector<std::string> required = cell.required_checks;
  required.insert(required.end(), {"history", "marks"});
  for (const std::string& name : required) {
    const auto at = std::find_if(verdicts.begin(), verdicts.end(),
                                 [&](const Verdict& v) { return v.name == name; });
    if (at == verdicts.end())
      return fmt::format("{} did not run", name);
    if (at->outcome == Outcome::kUndecided)
      return fmt::format("{}: {}", name, at->reason);
    if (at->outcome == Outcome::kSkipped && name != "marks")
      return fmt::format("{} was skipped: {}", name, at->reason);
  }
  return {};
}

}  // namespace

CaseReport judge_case(const Case& cell, const Run& run) {
  CaseReport report;
  report.id = cell.id;
  report.scenario = cell.scenario;
  report.implementation = cell.implementation;
  report.dtype = cell.dtype;
  report.device = cell.device;
  report.ranks = cell.world_size;
  report.seed = cell.seed;
  report.required = cell.required;
  for (const Mark& mark : run.marks)
    report.marks.push_back(mark.name);

  checkers::Judgement judged = checkers::judge(run, checkers::all_checkers());
  for (const Verdict& verdict : judged.verdicts)
    report.measures.insert(report.measures.end(), verdict.measures.begin(), verdict.measures.end());
  report.checks = std::move(judged.verdicts);
  if (cell.mutant != nullptr) {
    std::string why_not;
    report.mutants = {judge_mutant(cell, judged.findings, why_not)};
    report.outcome = why_not.empty() ? Outcome::kPass : Outcome::kUndecided;
    if (!why_not.empty())
      report.reason = fmt::format("mutant {} not caught: {}", cell.mutant->name, why_not);
    return report;
  }
  report.findings = std::move(judged.findings);
  if (!report.findings.empty()) {
    report.outcome = Outcome::kFail;
    return report;
  }
  report.reason = not_proven(cell, run, report.checks);
  report.outcome = report.reason.empty() ? Outcome::kPass : Outcome::kUndecided;
  return report;
}

Result<Case> case_of(const Plan& plan) {
  if (plan.case_id.empty())
    return Error{Error::Kind::kMalformedHistory, "its run.json names no case", ""};
  Case cell{.id = plan.case_id,
            .scenario = plan.scenario,
            .implementation = plan.implementation,
            .world_size = plan.world_size,
            .dtype = plan.dtype,
            .device = plan.device,
            .seed = plan.seed,
            .options = plan.options,
            .expected_marks = plan.expected_marks,
            .required_checks = plan.required_checks,
            .required = plan.required,
            .expected_site = plan.expected_site};
  if (!plan.mutant.empty()) {
    cell.mutant = mutants::find(plan.mutant);
    if (cell.mutant == nullptr)
      return Error{Error::Kind::kMalformedHistory,
                   fmt::format("this lockstep has no mutant {}", plan.mutant), ""};
  }
  return cell;
}

}  // namespace lockstep
