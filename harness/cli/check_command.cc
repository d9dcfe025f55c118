#include <cstdio>

#include "harness/cli/commands.h"
#include "harness/cli/judged_run.h"
#include "harness/session/picture.h"

namespace lockstep::cli {

int run_show_command(const std::string& run_directory, const std::string& to) {
  const Result<JudgedRun> judged = judged_run({run_directory});
  if (!judged)
    return report_error(judged.error());
  const std::string path = to.empty() ? run_directory + "/report.html" : to;
  const std::string page = session::render_page(judged->report, judged->worlds);
  if (auto written = write_file(path, page); !written)
    return report_error(written.error());
  std::printf("%s\n", shown_path(path).c_str());
  return 0;
}

int run_check_command(const std::vector<std::string>& runs, const std::string& baseline,
                      const Output& output) {
  Result<std::vector<KnownFinding>> known = std::vector<KnownFinding>();
  if (!baseline.empty())
    known = read_baseline(baseline);
  if (!known)
    return report_error(known.error());
  Result<JudgedRun> judged = judged_run(runs);
  if (!judged)
    return report_error(judged.error());
  Report& report = judged->report;
  if (!baseline.empty())
    use_baseline(report, *known,
                 judged->worlds.empty() ? std::vector<std::string>()
                                        : judged->worlds.back().run.plan.required_checks);
  if (!judged->only_read) {
    if (auto saved = save_report(report, runs.front()); !saved)
      return report_error(saved.error());
  }
  HumanOptions options = human_options_here(output, runs.front());
  if (judged->only_read)
    options.directory.clear();  // Nothing is saved there.
  const std::string text = render(report, output, options);
  std::fwrite(text.data(), 1, text.size(), stdout);
  return report.exit_status;
}

}  // namespace lockstep::cli
