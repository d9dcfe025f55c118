#include "harness/cli/judged_run.h"

#include <utility>

#include "harness/history/flight_recorder.h"
#include "harness/history/hosts.h"
#include "harness/session/dump_report.h"
#include "harness/session/job_report.h"
#include "scenarios/suite.h"

namespace lockstep::cli {
namespace {

Result<JudgedRun> judged_dumps(const std::string& path) {
  Result<Run> run = history::open_dumps(path);
  if (!run)
    return run.error();
  JudgedRun judged{.report = session::dump_report(*run), .only_read = true};
  judged.worlds.push_back({.run = std::move(*run)});
  return judged;
}

}  // namespace

Result<JudgedRun> judged_run(const std::vector<std::string>& directories) {
  const std::string& directory = directories.front();
  if (directories.size() == 1 && history::holds_dumps(directory))
    return judged_dumps(directory);
  Result<Run> run = history::open_hosts(directories);
  if (!run)
    return run.error();
  if (!run->plan.cases.empty() || !run->plan.case_id.empty()) {
    Result<Report> report = judge_saved(directory);
    if (!report)
      return report.error();
    return JudgedRun{.report = std::move(*report)};
  }
  const bool of_hosts = !run->hosts.empty();
  session::JudgedJob job = session::judged_job(std::move(*run));
  return JudgedRun{
      .report = std::move(job.report), .worlds = std::move(job.worlds), .only_read = of_hosts};
}

}  // namespace lockstep::cli
