#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "checkers/judge.h"
#include "scenarios/subject_judge.h"
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

std::vector<Code> codes_of(const std::vector<Finding>& findings) {
  std::vector<Code> codes;
  for (const Finding& finding : findings)
    codes.push_back(finding.code);
  return codes;
}

// What is expected is exactly one finding: its code, its culprits, its line, its tensor. One more
// is a false alarm. Empty if that is what was found, else what is wrong with it.
std::string not_as_expected(const Case& cell, const Expectation& expected,
                            const std::vector<Finding>& findings) {
  if (findings.size() != 1 || findings.front().code != expected.code) {
    return fmt::format(
        "expected {}, got {}", expected.code,
        findings.empty() ? "nothing" : fmt::format("{}", fmt::join(codes_of(findings), ", ")));
  }
  const Finding& finding = findings.front();
  if (finding.culprits != expected.culprits && !(expected.or_none && finding.culprits.empty())) {
    return fmt::format("expected culprits {}, got {}", expected.culprits.to_string(),
                       finding.culprits.to_string());
  }
  if (!expected.marker.empty() && !names_site(finding, cell.expected_site)) {
    return fmt::format("no site of the finding is {} (SITE: {})",
                       cell.expected_site.empty() ? "the marked line, whose source is not here"
                                                  : cell.expected_site,
                       expected.marker);
  }
  if (!names_tensor(finding, expected.tensor)) {
    return fmt::format(
        "expected tensor {}, got {}", expected.tensor,
        finding.names.empty() ? "none" : fmt::format("{}", fmt::join(finding.names, ", ")));
  }
  return {};
}

MutantResult result_of(const Case& cell, const Expectation& expected,
                       const std::vector<Finding>& findings, bool caught) {
  MutantResult result;
  result.name = std::string(cell.mutant->name);
  result.of = std::string(cell.mutant->of);
  result.expected = expected.code;
  result.expected_culprits = expected.culprits;
  result.got = codes_of(findings);
  if (!findings.empty())
    result.culprits = findings.front().culprits;
  result.caught = caught;
  return result;
}

// Hosts whose end nobody saw. Empty if there are none.
std::string not_home(const Run& run) {
  for (const ProcessStart& start : run.starts) {
    const bool ended = std::any_of(run.ends.begin(), run.ends.end(),
                                   [&](const ProcessEnd& end) { return end.pid == start.pid; });
    if (!ended)
      return fmt::format("the end of process {} is not on record", start.pid);
  }
  return {};
}

// Why the implementation's case cannot be called passed although nothing was found. Empty if it
// can.
std::string not_proven(const Case& cell, const Run& run, const std::vector<Verdict>& verdicts) {
  // The first of them, which led to what came after.
  const auto lacks = [](const Request& request) { return request.outcome == "unsupported"; };
  const auto lacking = std::find_if(run.requests.begin(), run.requests.end(), lacks);
  std::string unsupported =
      lacking == run.requests.end()
          ? ""
          : fmt::format("a host does not support `{}`: {}", lacking->message, lacking->text);
  if (cell.of_subject && !unsupported.empty())
    return unsupported;
  for (const Acted& acted : run.acted) {
    if (acted.action == "ended-early")
      return acted.reason;
  }
  if (!unsupported.empty())
    return unsupported;
  if (std::string unseen = unseen_subject(cell, run); !unseen.empty())
    return unseen;
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

// What this machine lacks for the case; only devices other than the CPU may be lacking.
std::string lacking_device(const Case& cell, const Run& run) {
  for (const Request& request : run.requests) {
    if (cell.device != "cpu" && request.outcome == "unsupported" && request.message == "init")
      return request.text;
    if (cell.of_subject && request.outcome == "unsupported" &&
        request.text.rfind("needs a device", 0) == 0)
      return request.text;
  }
  return {};
}

}  // namespace

std::optional<Expectation> expectation_of(const Case& cell) {
  const RankSet struck{Rank{std::stoi(cell.option("rank", "0"))}};
  if (cell.mutant != nullptr) {
    const bool names_one = cell.mutant->culprits != mutants::Culprits::kNone;
    return Expectation{.code = code_of(cell.mutant->code).value_or(Code::kNone),
                       .culprits = names_one ? struck : RankSet{},
                       .or_none = cell.mutant->culprits == mutants::Culprits::kAtMost,
                       .marker = std::string(cell.mutant->site),
                       .tensor = std::string(cell.mutant->tensor)};
  }
  const std::string fault = cell.option("fault");
  if (fault.empty() || fault == "thread" || fault == "zombie")
    return std::nullopt;
  const bool leaves = cell.option("at") == "now";
  const bool hangs = fault == "sleep" || fault == "stop";
  Code code = Code::kRankDied;
  if (hangs)
    code = cell.option("at") == "init"       ? Code::kNeverJoined
           : cell.option("at") == "teardown" ? Code::kWillNotExit
                                             : Code::kStalledOutside;
  if (leaves)
    code = fault == "segment" ? Code::kLeftover : Code::kOrphan;
  // Of one that lost its parent before anybody looked, nobody knows whose it was.
  return Expectation{.code = code, .culprits = fault == "new_session" ? RankSet{} : struck};
}

CaseReport report_of(const Case& cell) {
  CaseReport report;
  report.id = cell.id;
  report.scenario = cell.scenario;
  report.implementation = cell.implementation;
  report.dtype = cell.dtype;
  report.device = cell.device;
  report.ranks = cell.world_size;
  report.seed = cell.seed;
  report.required = cell.required;
  if (!cell.named_by.empty())
    report.subject = cell.named_by;
  if (!cell.not_applicable.empty()) {
    report.outcome = Outcome::kSkipped;
    report.reason = "not applicable: " + cell.not_applicable;
  } else if (!is_run(cell)) {
    report.outcome = Outcome::kSkipped;
    report.reason = "not declared: " + cell.not_declared;
  }
  return report;
}

CaseReport judge_case(const Case& cell, const Run& run, const checkers::Checkers& checkers) {
  CaseReport report = report_of(cell);
  for (const Mark& mark : run.marks)
    report.marks.push_back(mark.name);

  if (const std::string lacking = lacking_device(cell, run); !lacking.empty()) {
    report.outcome = Outcome::kSkipped;
    report.reason = lacking;
    return report;
  }
  checkers::Judgement judged = checkers::judge(run, checkers);
  for (const Verdict& verdict : judged.verdicts)
    report.measures.insert(report.measures.end(), verdict.measures.begin(), verdict.measures.end());
  report.checks = std::move(judged.verdicts);
  if (const auto expected = expectation_of(cell)) {
    std::string why_not = not_as_expected(cell, *expected, judged.findings);
    if (cell.mutant != nullptr) {
      report.mutants = {result_of(cell, *expected, judged.findings, why_not.empty())};
      if (!why_not.empty())
        why_not = fmt::format("mutant {} not caught: {}", cell.mutant->name, why_not);
    } else if (why_not.empty()) {
      why_not = not_home(run);
    } else {
      report.findings = std::move(judged.findings);
    }
    report.reason = why_not;
    if (!report.findings.empty())
      report.outcome = Outcome::kFail;
    else
      report.outcome = why_not.empty() ? Outcome::kPass : Outcome::kUndecided;
    return report;
  }
  report.findings = std::move(judged.findings);
  if (!report.findings.empty()) {
    report.outcome = Outcome::kFail;
    if (cell.of_subject)
      add_lines(run, report);
  } else {
    report.reason = not_proven(cell, run, report.checks);
    report.outcome = report.reason.empty() ? Outcome::kPass : Outcome::kUndecided;
  }
  soften(cell, report);
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
  if (!plan.declared("subject").empty()) {
    cell.of_subject = true;
    cell.kind = plan.contract.count("draws") > 0 ? "sampler" : "ddp";
  }
  cell.named_by = plan.declared("named_by");
  cell.not_declared = plan.declared("not_declared");
  if (!cell.not_declared.empty())
    cell.of_subject = cell.tried = true;
  if (!plan.mutant.empty()) {
    cell.mutant = mutants::find(plan.mutant);
    if (cell.mutant == nullptr)
      return Error{Error::Kind::kMalformedHistory,
                   fmt::format("this lockstep has no mutant {}", plan.mutant), ""};
  }
  return cell;
}

}  // namespace lockstep
