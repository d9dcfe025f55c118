#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <optional>
#include <utility>

#include "harness/base/version.h"
#include "harness/cli/commands.h"
#include "harness/cli/judged_run.h"
#include "harness/exports/perfetto.h"
#include "harness/exports/program.h"
#include "harness/exports/shown.h"
#include "harness/history/run_directory.h"
#include "harness/session/job_report.h"

namespace lockstep::cli {
namespace {

/// Errors first: who exports wants to see what is wrong.
std::vector<Finding> findings_of(const Report& report) {
  std::vector<Finding> findings = report.findings;
  for (const CaseReport& result : report.cases)
    findings.insert(findings.end(), result.findings.begin(), result.findings.end());
  std::stable_sort(findings.begin(), findings.end(),
                   [](const Finding& a, const Finding& b) { return a.severity < b.severity; });
  return findings;
}

Result<std::string> program_of(const JudgedRun& judged, bool fixed) {
  std::optional<Error> why;
  for (const Finding& finding : findings_of(judged.report)) {
    const Run* const run = session::run_of(judged.worlds, finding);
    if (run == nullptr)
      continue;
    Result<exports::Replay> replay = exports::replay_of(Job(*run), finding);
    if (replay && fixed)
      replay = exports::repaired(*replay, finding);
    if (replay)
      return exports::render_program(
          *replay, finding, {.run = judged.report.run, .version = kVersion, .fixed = fixed});
    if (!why)
      why = replay.error();
  }
  return why ? *why
             : exports::refused(
                   judged.report.findings.empty() ? "no finding" : "a finding of another kind",
                   "a mismatch of calls, or ranks that wait");
}

/// A case of a suite is judged by its scenario, and its calls are read once more.
Result<JudgedRun> with_calls(JudgedRun judged, const std::string& directory) {
  if (!judged.worlds.empty() || judged.report.cases.size() != 1)
    return judged;
  Result<Run> run = history::open_run(directory);
  if (!run)
    return run.error();
  judged.worlds = worlds_of(std::move(*run));
  return judged;
}

}  // namespace

int run_export_command(const ExportCommand& command) {
  Result<JudgedRun> judged = judged_run({command.run_directory});
  if (judged)
    judged = with_calls(std::move(*judged), command.run_directory);
  if (!judged)
    return report_error(judged.error());
  const bool program = command.as == ExportAs::kProgram;
  const Result<std::string> text = program
                                       ? program_of(*judged, command.fixed)
                                       : exports::render_perfetto(judged->report, judged->worlds);
  if (!text)
    return report_error(text.error());
  if (program && command.to.empty()) {
    std::fwrite(text->data(), 1, text->size(), stdout);
    return 0;
  }
  const std::string path =
      command.to.empty() ? command.run_directory + "/trace.perfetto-trace" : command.to;
  if (auto written = write_file(path, *text); !written)
    return report_error(written.error());
  std::printf("%s\n", shown_path(path).c_str());
  return 0;
}

}  // namespace lockstep::cli
