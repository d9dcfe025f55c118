#include <cstdio>
#include <utility>

#include "harness/cli/commands.h"
#include "harness/history/flight_recorder.h"
#include "harness/history/run_directory.h"
#include "harness/model/worlds.h"
#include "harness/session/dump_report.h"
#include "harness/session/job_report.h"
#include "harness/session/picture.h"

namespace lockstep::cli {
namespace {

/// Dumps are somebody else's, and their folder is only read.
Result<Report> judge_dumps(const std::string& path) {
  const Result<Run> run = history::open_dumps(path);
  if (!run)
    return run.error();
  return session::dump_report(*run);
}

/// A suite or a case of one, or a job.
Result<Report> judge_directory(const std::string& directory) {
  Result<Run> run = history::open_run(directory);
  if (!run)
    return run.error();
  const bool suite = !run->plan.cases.empty() || !run->plan.case_id.empty();
  return suite ? judge_saved(directory) : session::job_report(std::move(*run));
}

}  // namespace

int run_show_command(const std::string& run_directory, const std::string& to) {
  const Result<Report> report = judge_directory(run_directory);
  if (!report)
    return report_error(report.error());
  std::vector<World> worlds;
  if (report->cases.empty()) {
    Result<Run> run = history::open_run(run_directory);
    if (!run)
      return report_error(run.error());
    worlds = worlds_of(std::move(*run));
  }
  const std::string path = to.empty() ? run_directory + "/report.html" : to;
  if (auto written = write_file(path, session::render_page(*report, worlds)); !written)
    return report_error(written.error());
  std::printf("%s\n", shown_path(path).c_str());
  return 0;
}

int run_check_command(const std::string& run_directory, const Output& output) {
  const bool dumps = history::holds_dumps(run_directory);
  const Result<Report> report = dumps ? judge_dumps(run_directory) : judge_directory(run_directory);
  if (!report)
    return report_error(report.error());
  if (!dumps) {
    if (auto saved = save_report(*report, run_directory); !saved)
      return report_error(saved.error());
  }
  HumanOptions options = human_options_here(output, run_directory);
  if (dumps)
    options.directory.clear();  // Nothing is saved there.
  const std::string text = render(*report, output, options);
  std::fwrite(text.data(), 1, text.size(), stdout);
  return report->exit_status;
}

}  // namespace lockstep::cli
