#include "harness/session/dump_report.h"

#include <algorithm>

#include "checkers/dumps.h"
#include "harness/base/version.h"
#include "harness/verdict/exit_codes.h"

namespace lockstep::session {

Report dump_report(const Run& run) {
  Report report;
  report.run = run.plan.id;
  report.versions["lockstep"] = kVersion;
  report.world_size = run.plan.world_size;
  for (const Process& process : run.processes)
    report.ranks.push_back({.rank = *process.rank});
  checkers::Judgement judgement = checkers::judge_dumps(run);
  report.findings = std::move(judgement.findings);
  report.checks = std::move(judgement.verdicts);
  report.outcome = judgement.outcome;
  const auto open = std::find_if(report.checks.begin(), report.checks.end(), [](const auto& check) {
    return check.outcome == Outcome::kUndecided && check.name != "history";
  });
  ExitCode status = ExitCode::kNothingFound;
  if (judgement.outcome == Outcome::kFail)
    status = ExitCode::kFinding;
  else if (open != report.checks.end())
    status = ExitCode::kUndecided;
  if (status == ExitCode::kUndecided)
    report.reason = open->reason;
  else if (status == ExitCode::kNothingFound)
    report.outcome = Outcome::kPass;
  report.exit_status = status_of(status);
  return report;
}

}  // namespace lockstep::session
