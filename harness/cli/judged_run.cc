#include "harness/cli/judged_run.h"

#include <utility>

#include "harness/history/flight_recorder.h"
#include "harness/history/run_directory.h"
#include "harness/session/dump_report.h"
#include "harness/session/job_report.h"
#include "scenarios/suite.h"

namespace lockstep::cli {
namespace {

Result<JudgedRun> judged_dumps(const std::string& path) {
  Result<Run> run = history::open_dumps(path);
  if (!run)
    return run.error();
  JudgedRun judged{.report = session::dump_report(*run), .of_dumps = true};
  judged.worlds.push_back({.run = std::move(*run)});
  return judged;
}

}  // namespace

Result<JudgedRun> judged_run(const std::string& directory) {
  if (history::holds_dumps(directory))
    return judged_dumps(directory);
  Result<Run> run = history::open_run(directory);
  if (!run)
    return run.error();
  if (!run->plan.cases.empty() || !run->plan.case_id.empty()) {
    Result<Report> report = judge_saved(directory);
    if (!report)
      return report.error();
    return JudgedRun{.report = std::move(*report)};
  }
  session::JudgedJob job = session::judged_job(std::move(*run));
  return JudgedRun{.report = std::move(job.report), .worlds = std::move(job.worlds)};
}

}  // namespace lockstep::cli
