#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>

#include "harness/base/clock.h"
#include "harness/base/version.h"
#include "harness/cli/commands.h"
#include "harness/cli/guarded_run.h"
#include "harness/launch/guard.h"
#include "harness/report/live.h"

namespace lockstep::cli {
namespace {

int list_cases(const std::vector<Case>& cases) {
  for (const Case& cell : cases)
    fmt::print("{}\n", cell.id);
  return 0;
}

int list_mutants() {
  for (const mutants::Mutant* mutant : mutants::all())
    fmt::print("{:<32} {}  {:<14} {:<22} {}\n", mutant->name, mutant->code, mutant->of,
               mutant->scenario, mutant->about);
  return 0;
}

// The programs that serve the conversation lie beside this one.
Result<void> find_hosts(SuiteOptions& options) {
  std::error_code failed;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", failed);
  for (auto [path, name] :
       {std::pair{&options.rank_host,
                  options.device == "cuda" ? "lockstep_rank_host_cuda" : "lockstep_rank_host"},
        std::pair{&options.reference_host, "lockstep_reference_host"}}) {
    *path = (self.parent_path() / name).string();
    if (access(path->c_str(), X_OK) != 0) {
      return Error{Error::Kind::kEnvironment,
                   fmt::format("{} is not there: the suite needs it", *path),
                   options.device == "cuda" ? "build with a torch that has CUDA: ./ci/dev build"
                                            : "build with LibTorch: ./ci/dev build"};
    }
  }
  return {};
}

void write_out(std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

Report header_of(const std::string& run, const std::vector<std::string>& arguments) {
  Report report;
  report.run = run;
  report.command = arguments;
  report.versions["lockstep"] = kVersion;
  return report;
}

int run_cases(launch::Supervisor& supervisor, const SuiteCommand& command,
              const std::vector<Case>& cases) {
  Result<std::vector<KnownFinding>> known = std::vector<KnownFinding>();
  if (!command.baseline.empty())
    known = read_baseline(command.baseline);
  if (!known)
    return report_error(known.error());
  Result<GuardedRun> run = GuardedRun::create(supervisor, command.run_directory);
  if (!run)
    return report_error(run.error());
  history::RunDirectory& directory = run->directory;
  const HumanOptions human = human_options_here(command.output, directory.path());
  const bool to_people = command.output.format == Format::kHuman;
  const Report header = header_of(directory.id(), command.suite.command);
  if (to_people)
    write_out(human_header(header, cases.size(), human));

  LiveProgress live(write_out, human, human.rewrite, cases.size());
  const std::uint64_t begun_ns = now_ns();
  const auto elapsed_s = [&] { return static_cast<double>(now_ns() - begun_ns) / 1e9; };
  SuiteProgress progress;
  if (to_people) {
    progress.running = [&](const Case& cell) { live.running(cell.id, elapsed_s()); };
    progress.finished = [&](const CaseReport& result) { live.finished(result, elapsed_s()); };
  }
  Result<Report> report = run_suite(supervisor, command.suite, cases, directory, progress);
  live.pause();
  if (!report)
    return report_error(report.error());
  if (!command.baseline.empty())
    use_baseline(*report, *known, {});
  const std::string path = directory.path();
  if (auto closed = directory.close(); !closed)
    return report_error(closed.error());
  if (auto saved = save_report(*report, path); !saved)
    return report_error(saved.error());
  write_out(to_people ? human_end(*report, human) : render(*report, command.output, human));
  return report->exit_status;
}

}  // namespace

int run_suite_command(const SuiteCommand& command, const std::vector<std::string>& arguments) {
  if (command.list_mutants)
    return list_mutants();
  SuiteCommand ready = command;
  ready.suite.command = arguments;
  Result<std::vector<Case>> cases = select_cases(ready.suite);
  if (!cases)
    return report_error(cases.error());
  if (command.list)
    return list_cases(*cases);
  if (auto found = find_hosts(ready.suite); !found)
    return report_error(found.error());
  return launch::run_guarded(
      [&](launch::Supervisor& supervisor) { return run_cases(supervisor, ready, *cases); });
}

}  // namespace lockstep::cli
