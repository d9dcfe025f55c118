#include <cstdio>

#include "harness/cli/commands.h"

namespace lockstep::cli {

int run_check_command(const std::string& run_directory, const Output& output) {
  const Result<Report> report = judge_saved(run_directory);
  if (!report)
    return report_error(report.error());
  if (auto saved = save_report(*report, run_directory); !saved)
    return report_error(saved.error());
  const std::string text = render(*report, output, human_options_here(output, run_directory));
  std::fwrite(text.data(), 1, text.size(), stdout);
  return report->exit_status;
}

}  // namespace lockstep::cli
