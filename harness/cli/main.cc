// lockstep: command line to command.

#include <fcntl.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <iostream>
#include <string_view>

#include "harness/base/version.h"
#include "harness/cli/commands.h"
#include "harness/session/job_report.h"
#include "harness/verdict/exit_codes.h"

namespace lockstep::cli {
namespace {

// The words of an option and what they stand for; help and error messages list the words.
template <class Value>
void add_choice(CLI::App& command, const std::string& flag, Value& value,
                const std::map<std::string, Value>& words) {
  std::vector<std::string> known;
  std::string listed;
  for (const auto& [word, meaning] : words) {
    known.push_back(word);
    listed += (listed.empty() ? "" : ", ") + word;
  }
  command
      .add_option_function<std::string>(
          flag, [&value, words](const std::string& word) { value = words.at(word); },
          "One of " + listed)
      ->check(CLI::IsMember(known).description(""));
}

void add_output(CLI::App& command, Output& output) {
  add_choice<Format>(command, "--format", output.format,
                     {{"human", Format::kHuman},
                      {"json", Format::kJson},
                      {"junit", Format::kJunit},
                      {"concise", Format::kConcise},
                      {"sarif", Format::kSarif},
                      {"github", Format::kGithub},
                      {"gitlab", Format::kGitlab},
                      {"markdown", Format::kMarkdown}});
  add_choice<ColorChoice>(command, "--color", output.color,
                          {{"auto", ColorChoice::kAuto},
                           {"always", ColorChoice::kAlways},
                           {"never", ColorChoice::kNever}});
}

void add_baseline(CLI::App& command, std::string& baseline) {
  command.add_option("--baseline", baseline,
                     "The report.json of an earlier run: fail only on what is new");
}

struct Parsed {
  SuiteCommand suite{};
  RunCommand job{};
  std::string run{};
  std::vector<std::string> runs{};
  std::string code{};
  TapBuild tap{};
  DiagnoseCommand diagnose{};
  Output check_output{};
  std::string check_baseline{};
  ExportCommand export_{};
};

void add_suite(CLI::App& app, Parsed& parsed) {
  CLI::App& suite =
      *app.add_subcommand("suite", "Run the scenarios over the implementations and judge them");
  SuiteOptions& options = parsed.suite.suite;
  suite.add_option("--scenario", options.scenarios, "Only this scenario (repeatable)");
  suite.add_option("--implementation", options.implementations,
                   "Only this implementation, mutant/NAME, or mutant for all of them (repeatable)");
  suite.add_option("--subject", parsed.suite.subject,
                   "Somebody else's implementation in the place of ours: torch, MODULE:NAME, "
                   "FILE.py:NAME, or a shared library");
  suite.add_option("--as", parsed.suite.kind, "What the subject is (default ddp)")
      ->needs("--subject")
      ->check(CLI::IsMember({"ddp", "dp", "balanced_dp", "sync_bn", "sampler"}));
  suite.add_option("--python", parsed.suite.python, "The interpreter that the subject runs in")
      ->capture_default_str()
      ->needs("--subject");
  suite.add_option("-n,--ranks", options.ranks, "Only this world size (repeatable)");
  suite.add_option("--dtype", options.dtypes, "Only this dtype (repeatable)");
  suite.add_option("--device", options.device, "cpu, or cuda: ranks over NCCL, one device each")
      ->capture_default_str()
      ->check(CLI::IsMember({"cpu", "cuda"}));
  suite.add_option("--case", options.cases, "Only the case with this id (repeatable)");
  suite.add_option("--seed", options.seed, "Of data and of what the mutants strike")
      ->capture_default_str();
  suite.add_option("--run-dir", parsed.suite.run_directory,
                   "Where to write; new or empty (default .lockstep/<id>)");
  suite
      .add_option("-j,--jobs", options.jobs,
                  "Cases at a time (default: one for each two processors, at least two)")
      ->check(CLI::Range(1, 64).description(""));
  suite.add_option("--lane", parsed.suite.lane)->expected(3)->group("");
  suite.add_flag("--list", parsed.suite.list, "Print the cases and run nothing");
  suite.add_flag("--mutants", parsed.suite.list_mutants, "Print the mutants and run nothing");
  add_baseline(suite, parsed.suite.baseline);
  add_output(suite, parsed.suite.output);
}

void add_run(CLI::App& app, Parsed& parsed) {
  CLI::App& run = *app.add_subcommand(
      "run", "Run any distributed program as it is, and say what is wrong with it");
  RunCommand& command = parsed.job;
  run.add_option(
         "-n,--ranks", command.ranks,
         "Start this many ranks; without it the command starts them (torchrun, mpirun, ...)")
      ->check(CLI::Range(1, 1024).description(""));
  run.add_option("--run-dir", command.run_directory,
                 "Where to write; new or empty (default .lockstep/<id>)");
  add_choice<session::OnHang>(
      run, "--on-hang", command.on_hang,
      {{"end", session::OnHang::kEnd}, {"report", session::OnHang::kReport}});
  run.add_option("--stall-limit", command.stall_limit_s,
                 "End the job when no rank has moved for this many seconds")
      ->check(CLI::PositiveNumber.description(""));
  run.add_option("--time-limit", command.time_limit_s,
                 "End the job after this many seconds, whatever it does, and judge it")
      ->check(CLI::PositiveNumber.description(""));
  run.add_option("--require", command.required, "Status 2 if this check cannot decide (repeatable)")
      ->check(CLI::IsMember(session::check_names()).description(""));
  run.add_flag("--watch", command.watch,
               "Look at parameters and gradients, too: do the replicas stay equal?");
  run.add_option("--watch-budget", command.watch_budget,
                 "Percent of the program's time that looking at them may take")
      ->capture_default_str()
      ->check(CLI::Range(0.01, 50.0).description(""));
  run.add_option("--allow", command.allowed,
                 "CODE@FILE:FUNCTION: what is found there is meant (repeatable; or a line with a "
                 "reason in lockstep.allow)");
  add_baseline(run, command.baseline);
  add_choice<session::OnDivergence>(
      run, "--on-divergence", command.on_divergence,
      {{"end", session::OnDivergence::kEnd}, {"report", session::OnDivergence::kReport}});
  run.add_flag("--keep", command.keep, "Leave what is left after the last rank as it is");
  run.add_option("--allow-survivor", command.allowed_survivors,
                 "Leave processes of this name as they are (repeatable)");
  add_choice<bool>(run, "--exit", command.exit_as_program, {{"verdict", false}, {"program", true}});
  add_choice<ColorChoice>(run, "--color", command.color,
                          {{"auto", ColorChoice::kAuto},
                           {"always", ColorChoice::kAlways},
                           {"never", ColorChoice::kNever}});
  run.footer("The program and its arguments follow --: lockstep run -n 2 -- python train.py");
}

void add_export(CLI::App& app, Parsed& parsed) {
  CLI::App& command = *app.add_subcommand(
      "export", "Write what a run called as a program that calls it again, or as a trace");
  command.add_option("RUN", parsed.export_.run_directory, "Its directory, or one of dumps")
      ->required();
  add_choice<ExportAs>(command, "--to", parsed.export_.as,
                       {{"program", ExportAs::kProgram}, {"perfetto", ExportAs::kPerfetto}});
  command.get_option("--to")->required();
  command.add_flag("--fixed", parsed.export_.fixed,
                   "Of a program the twin in which all ranks make the calls, and which ends");
  command.add_option("--out", parsed.export_.to,
                     "Where to write it (default: a program to standard output, a trace to "
                     "RUN/trace.perfetto-trace)");
}

CLI::App& add_diagnose(CLI::App& app, DiagnoseCommand& command) {
  CLI::App& diagnose = *app.add_subcommand(
      "diagnose", "Look at a job that runs and that lockstep did not start: who waits for whom");
  diagnose.add_option("PID", command.pids,
                      "Of a rank, or of what started the ranks; without it the only job here");
  diagnose.add_option("--name", command.name, "Only ranks whose command line contains this");
  diagnose.add_option("--job", command.job,
                      "Only the job with this id (Slurm, torchrun), or this MASTER_ADDR:PORT");
  diagnose.add_option("--watch", command.watch_s, "Look again every so many seconds")
      ->check(CLI::PositiveNumber.description(""));
  diagnose.add_flag("--stacks", command.stacks, "Show a stack of each group of equal ranks");
  diagnose.add_flag("--json", command.json, "Print a document for machines");
  return diagnose;
}

CLI::App& add_tap(CLI::App& app, TapBuild& command) {
  CLI::App& tap = *app.add_subcommand("tap", "What `run` enters a program with");
  tap.require_subcommand(1);
  CLI::App& build = *tap.add_subcommand("build", "Compile it now, and not when a job starts");
  build.add_option("--python", command.program, "For the torch of this Python, or of this program")
      ->capture_default_str();
  build.add_option("--torch", command.torch, "For the torch in this folder (include/, lib/)");
  build.add_option("--into", command.into, "Into this folder, to be brought along")
      ->needs("--torch");
  return tap;
}

// What follows "--" is the user's, word for word: CLI11 would take "[1,2]" for a list.
std::vector<std::string> take_command(int& argc, char** argv) {
  char** const end = argv + argc;
  char** const dashes =
      std::find_if(argv, end, [](const char* word) { return word == std::string_view("--"); });
  if (argc < 2 || argv[1] != std::string_view("run") || dashes == end)
    return {};
  argc = static_cast<int>(dashes - argv);
  return {dashes + 1, end};
}

// What we open must not take the place of a standard stream that we were started without. Closed
// again on exec: what we start has none either.
void fill_standard_descriptors() {
  for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; ++fd) {
    if (::fcntl(fd, F_GETFD) < 0 && errno == EBADF)
      (void)::open("/dev/null", O_RDWR | O_CLOEXEC);
  }
}

}  // namespace

int run(int argc, char** argv) {
  fill_standard_descriptors();
  CLI::App app{
      "lockstep tells when the ranks of a distributed training job break step: which rank, where, "
      "and why",
      "lockstep"};
  app.set_version_flag("--version", std::string("lockstep ") + kVersion);
  app.require_subcommand(1);
  Parsed parsed;
  parsed.job.command = take_command(argc, argv);
  add_suite(app, parsed);
  add_run(app, parsed);
  CLI::App& check =
      *app.add_subcommand("check", "Judge a finished run again, without running anything");
  check
      .add_option("RUN", parsed.runs,
                  "Its directory; those of all hosts of a job, or where they lie; or one of Flight "
                  "Recorder dumps")
      ->required();
  add_baseline(check, parsed.check_baseline);
  add_output(check, parsed.check_output);
  std::string page;
  CLI::App& show = *app.add_subcommand("show", "Make one page of a run, to be read in a browser");
  show.add_option("RUN", parsed.run, "Its directory")->required();
  show.add_option("--html", page, "Where to write it (default RUN/report.html)");
  add_export(app, parsed);
  bool dry_run{};
  CLI::App& clean = *app.add_subcommand(
      "clean", "End what runs left behind whose lockstep was killed as a whole");
  clean.add_option("RUN", parsed.run, "Only of this run");
  clean.add_flag("--dry-run", dry_run, "Only list it");
  CLI::App& explain = *app.add_subcommand(
      "explain", "Print the page of a code: symptom, causes, what to look at, fix");
  explain.add_option("CODE", parsed.code, "LS301, or its word; without it all codes are listed");
  const CLI::App& diagnose = add_diagnose(app, parsed.diagnose);
  bool json{};
  CLI::App& doctor = *app.add_subcommand(
      "doctor", "Look at this host: limits, shared memory, names, interfaces, clocks, torch");
  doctor.add_flag("--json", json, "Print a document for machines");
  const CLI::App& tap = add_tap(app, parsed.tap);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0)  // --help, --version
      return app.exit(error, std::cout, std::cerr);
    std::cerr << "lockstep: " << error.what() << "\n  help: lockstep --help\n";
    return status_of(ExitCode::kUsage);
  }
  if (app.got_subcommand("run"))
    return run_run_command(parsed.job);
  if (check.parsed())
    return run_check_command(parsed.runs, parsed.check_baseline, parsed.check_output);
  if (show.parsed())
    return run_show_command(parsed.run, page);
  if (app.got_subcommand("export"))
    return run_export_command(parsed.export_);
  if (clean.parsed())
    return run_clean_command(parsed.run, dry_run);
  if (diagnose.parsed())
    return run_diagnose_command(parsed.diagnose);
  if (doctor.parsed())
    return run_doctor_command(json, parsed.check_output);
  if (explain.parsed())
    return run_explain_command(parsed.code);
  if (tap.parsed())
    return run_tap_build_command(parsed.tap);
  return run_suite_command(parsed.suite, {argv, argv + argc});
}

}  // namespace lockstep::cli

int main(int argc, char** argv) { return lockstep::cli::run(argc, argv); }
