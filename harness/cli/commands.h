// The commands of the lockstep program: each takes its parsed options and returns the exit status.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "harness/report/baseline.h"
#include "harness/report/human.h"
#include "harness/session/watch.h"
#include "scenarios/suite.h"

namespace lockstep::cli {

enum class Format : std::uint8_t {
  kHuman,
  kJson,
  kJunit,
  kConcise,
  kSarif,
  kGithub,
  kGitlab,
  kMarkdown
};

struct Output {
  Format format{Format::kHuman};
  ColorChoice color{ColorChoice::kAuto};
};

struct SuiteCommand {
  SuiteOptions suite{};
  std::string subject{}, kind{};  ///< MODULE:NAME or "torch", and what it is; empty: our own.
  std::string python{"python3"};  ///< That the subject runs in.
  std::string run_directory{};    ///< Empty: .lockstep/<id>.
  bool list{};
  bool list_mutants{};
  std::string baseline{};  ///< A report.json; empty: none.
  /// Path, id and cases_live_in() of the suite's run whose cases this process is to run.
  std::vector<std::string> lane{};
  Output output{};
};

struct RunCommand {
  std::vector<std::string> command{};
  std::int32_t ranks{};         ///< 0: the command starts them itself.
  std::string run_directory{};  ///< Empty: .lockstep/<id>.
  session::OnHang on_hang{session::OnHang::kEnd};
  double stall_limit_s{}, time_limit_s{};  ///< 0: none.
  std::vector<std::string> required{};
  bool exit_as_program{};
  bool keep{};
  bool watch{};
  session::OnDivergence on_divergence{session::OnDivergence::kReport};
  std::vector<std::string> allowed{};  ///< CODE@FILE:FUNCTION
  double watch_budget{1};              ///< Percent of the time of the program.
  std::vector<std::string> allowed_survivors{};
  std::string baseline{};  ///< A report.json; empty: none.
  ColorChoice color{ColorChoice::kAuto};
};

int run_run_command(const RunCommand& command);
int run_suite_command(const SuiteCommand& command, const std::vector<std::string>& arguments);
/// `runs`: one directory, or those of one job that each host recorded. `baseline`: a report.json;
/// empty: none.
int run_check_command(const std::vector<std::string>& runs, const std::string& baseline,
                      const Output& output);
/// `to`: the page; empty: report.html in that directory.
int run_show_command(const std::string& run_directory, const std::string& to);
enum class ExportAs : std::uint8_t { kProgram, kPerfetto };

struct ExportCommand {
  std::string run_directory{};
  ExportAs as{};
  bool fixed{};
  std::string to{};  ///< Empty: standard output; of a trace RUN/trace.perfetto-trace.
};
int run_export_command(const ExportCommand& command);
/// `run_directory`: only of that run; empty: of all. `dry_run`: only list.
int run_clean_command(const std::string& run_directory, bool dry_run);
int run_explain_command(const std::string& code);

struct DiagnoseCommand {
  std::vector<std::int32_t> pids{};
  std::string name{};  ///< Part of the command lines of ranks.
  std::string job{};   ///< Its id, or where its ranks meet.
  double watch_s{};    ///< Look again after this many seconds; 0: look once.
  bool stacks{};
  bool json{};
  Output output{};
};
int run_diagnose_command(const DiagnoseCommand& command);
/// `json`: a document for machines.
int run_doctor_command(bool json, const Output& output);

struct TapBuild {
  std::string program{"python3"};  ///< A Python, a script of one, or a program linked to LibTorch.
  std::string torch{};  ///< In the place of the program: the folder that holds include/ and lib/.
  std::string into{};   ///< Empty: the user's cache.
};
int run_tap_build_command(const TapBuild& build);

/// Errors: kIo.
Result<void> write_file(const std::string& path, const std::string& text);

/// Of a source; empty where it cannot be read.
std::string line_text(const SiteRef& site);

Result<std::vector<KnownFinding>> read_baseline(const std::string& path);

/// What it knows is no error any more, and what of it is not found any more is said on stderr.
void use_baseline(Report& report, const std::vector<KnownFinding>& known,
                  const std::vector<std::string>& required);

/// "lockstep: WHAT" and the next step, to stderr. Returns the status that goes with its kind.
int report_error(const Error& error);

/// A path as the user would type it: relative where it lies below the current directory.
std::string shown_path(const std::string& path);

/// How text to `descriptor` should look here.
HumanOptions human_options_here(const Output& output, const std::string& directory,
                                int descriptor = 1);

/// The report in the format asked for.
std::string render(const Report& report, const Output& output, const HumanOptions& human);

/// report.json and report.txt of a run directory.
Result<void> save_report(const Report& report, const std::string& directory);

}  // namespace lockstep::cli
