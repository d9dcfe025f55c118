#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <thread>

#include "harness/base/clock.h"
#include "harness/base/version.h"
#include "harness/cli/commands.h"
#include "harness/cli/guarded_run.h"
#include "harness/entry/entry.h"
#include "harness/entry/program.h"
#include "harness/launch/guard.h"
#include "harness/launch/warm_parent.h"
#include "harness/report/live.h"
#include "harness/report/text.h"
#include "scenarios/lanes.h"

namespace lockstep::cli {
namespace {

int list_cases(const std::vector<Case>& cases) {
  for (const Case& cell : cases) {
    const std::string why = is_run(cell) ? "" : report_of(cell).reason;
    fmt::print("{}{}{}\n", cell.id, why.empty() ? "" : "  ", cell.of_subject ? why : "");
  }
  return 0;
}

int list_mutants() {
  const auto list = [](const mutants::Mutant& mutant) {
    fmt::print("{:<32} {}  {:<14} {:<22} {}\n", mutant.name, mutant.code, mutant.of,
               mutant.scenario, mutant.about);
  };
  for (const mutants::Mutant* mutant : mutants::all())
    list(*mutant);
  for (const mutants::Mutant& mutant : mutants::kSubjectMutants)
    list(mutant);
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
                   options.device == "cuda"
                       ? "build with a torch that has CUDA: ./ci/dev build"
                       : "build with LibTorch: ./ci/dev build; or name an implementation in "
                         "Python: --subject torch"};
    }
  }
  return {};
}

/// Each is this program again, asked for the same cases.
void use_lanes(SuiteOptions& options) {
  std::error_code failed;
  options.lane_command = options.command;
  if (!options.lane_command.empty())
    options.lane_command.front() = std::filesystem::read_symlink("/proc/self/exe", failed).string();
  if (options.jobs == 0)
    options.jobs = options.device == "cuda"
                       ? 1
                       : std::max<std::size_t>(2, std::thread::hardware_concurrency() / 2);
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

/// What a suite says while it runs, to people.
class Told {
 public:
  explicit Told(const HumanOptions& human) : human_(human) {}

  void begin(const Report& header, const std::vector<Case>& cases,
             const std::vector<Subject>& subjects) {
    write_out(human_header(header, cases.size(), human_));
    for (const Subject& subject : subjects) {
      if (subject.absent.empty())
        write_out(fmt::format("   subject  {}: {} ({})\n", subject.name, subject.adapter,
                              shown_path(subject.defined_at)));
    }
    live_.emplace(write_out, human_, human_.rewrite, cases.size());
  }
  void running(const Case& cell) { live_->running(cell.id, elapsed_s()); }
  void finished(const CaseReport& result) { live_->finished(result, elapsed_s()); }
  void pause() {
    if (live_)
      live_->pause();
  }

 private:
  [[nodiscard]] double elapsed_s() const { return static_cast<double>(now_ns() - begun_ns_) / 1e9; }

  const HumanOptions& human_;
  std::optional<LiveProgress> live_{};
  std::uint64_t begun_ns_{now_ns()};
};

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
  Told told(human);
  SuiteProgress progress;
  if (to_people) {
    progress.begun = [&](const std::vector<Case>& all, const std::vector<Subject>& subjects) {
      told.begin(header, all, subjects);
    };
    progress.running = [&](const Case& cell) { told.running(cell); };
    progress.finished = [&](const CaseReport& result) { told.finished(result); };
  }
  Result<Report> report = command.subject.empty()
                              ? run_suite(supervisor, command.suite, cases, directory, progress)
                              : run_subject_suite(supervisor, command.suite, directory, progress);
  told.pause();
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

/// The words of the command that name the subject.
std::string words_of(const SuiteCommand& command, const std::string& python) {
  std::string words = "--subject " + report::shell_word(command.subject);
  if (!command.kind.empty())
    words += " --as " + command.kind;
  return python.empty() ? words : words + " --python " + report::shell_word(python);
}

/// The interpreter, what serves the subject in it, and how the tap gets in: the shim waits in the
/// warm parent until a rank that was forked from it asks for the tap (harness/subject/host.py).
Result<SubjectChoice> choose_python(const SuiteCommand& command) {
  const auto python = entry::find_in_path(command.python);
  if (!python)
    return Error{Error::Kind::kEnvironment,
                 fmt::format("{} is no program that can be run", command.python),
                 "need a Python with torch: --python INTERPRETER"};
  const Result<entry::Torch> torch = entry::torch_of_program(*python);
  if (!torch)
    return Error{torch.error().kind, torch.error().what,
                 "need a Python with torch: --python INTERPRETER, or activate its environment"};
  const auto say = [](const std::string& what) { fmt::print(stderr, "lockstep: {}\n", what); };
  entry::Entry entry = entry::prepare({*python}, "", say);
  if (!entry.unseen.empty())
    return Error{Error::Kind::kEnvironment, entry.unseen,
                 "a case in which no collective is seen is worth nothing"};
  for (const char* const of_a_job : {"LOCKSTEP_HISTORY", "LOCKSTEP_SUPERVISOR"})
    entry.environment.erase(of_a_job);
  // One thread, or a fork would copy locks that another one holds.
  for (const char* const threads : {"OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"})
    entry.environment[threads] = "1";
  entry.environment["PYTHONUNBUFFERED"] = "1";
  if (std::getenv("GLOO_SOCKET_IFNAME") == nullptr)
    entry.environment["GLOO_SOCKET_IFNAME"] = "lo";
  return SubjectChoice{
      .name = command.subject,
      .kind = command.kind,
      .words = words_of(command, command.python),
      .command = {*python, entry::subject_program(), "--warm", command.subject, command.kind},
      .environment = std::move(entry.environment)};
}

bool is_library(const std::string& subject) {
  return subject.find(':') == std::string::npos &&
         (subject.ends_with(".so") || subject.find(".so.") != std::string::npos);
}

/// A shared library is loaded into the rank host, which has the tap inside.
Result<SubjectChoice> choose_library(SuiteCommand& command) {
  std::error_code failed;
  const std::filesystem::path path = std::filesystem::canonical(command.subject, failed);
  if (failed)
    return Error{Error::Kind::kUsage, fmt::format("{}: {}", command.subject, failed.message()),
                 "need a shared library; docs/subjects.md has how one is made"};
  if (auto found = find_hosts(command.suite); !found)
    return found.error();
  return SubjectChoice{.name = command.subject,
                       .kind = command.kind,
                       .words = words_of(command, ""),
                       .command = {command.suite.rank_host, "--warm"},
                       .environment = {{"LOCKSTEP_SUBJECT", path.string()},
                                       {"LOCKSTEP_SUBJECT_KIND", command.kind}}};
}

int list_subject(launch::Supervisor& supervisor, const SuiteOptions& options) {
  const auto scratch = std::filesystem::temp_directory_path() /
                       fmt::format("lockstep-list-{}", static_cast<int>(::getpid()));
  const auto gone_at_end = supervisor.remove_at_end(scratch.string());
  if (!gone_at_end)
    return report_error(gone_at_end.error());
  std::error_code failed;
  std::filesystem::create_directory(scratch, failed);
  launch::WarmParent hosts(supervisor, warm_options(options.subject, scratch / "warm.log"));
  const auto subjects = introduce(supervisor, hosts, scratch.string());
  if (!subjects)
    return report_error(subjects.error());
  const auto cases = select_cases(options, *subjects);
  return cases ? list_cases(*cases) : report_error(cases.error());
}

int run_lane(launch::Supervisor& supervisor, const SuiteCommand& command,
             const std::vector<Case>* cases) {
  auto directory =
      history::RunDirectory::of_suite(command.lane[0], command.lane[1], command.lane[2]);
  if (cases != nullptr)
    return serve_cases(supervisor, command.suite, *cases, directory);
  const auto of_subject = select_cases(supervisor, command.suite, directory, nullptr);
  return of_subject ? serve_cases(supervisor, command.suite, *of_subject, directory)
                    : report_error(of_subject.error());
}

int run_subject(SuiteCommand command) {
  Result<SubjectChoice> choice =
      is_library(command.subject) ? choose_library(command) : choose_python(command);
  if (!choice)
    return report_error(choice.error());
  command.suite.subject = std::move(*choice);
  return launch::run_guarded([&](launch::Supervisor& supervisor) {
    return command.list           ? list_subject(supervisor, command.suite)
           : command.lane.empty() ? run_cases(supervisor, command, {})
                                  : run_lane(supervisor, command, nullptr);
  });
}

}  // namespace

int run_suite_command(const SuiteCommand& command, const std::vector<std::string>& arguments) {
  if (command.list_mutants)
    return list_mutants();
  SuiteCommand ready = command;
  ready.suite.command = arguments;
  use_lanes(ready.suite);
  if (!command.subject.empty())
    return run_subject(std::move(ready));
  Result<std::vector<Case>> cases = select_cases(ready.suite);
  if (!cases)
    return report_error(cases.error());
  if (command.list)
    return list_cases(*cases);
  if (auto found = find_hosts(ready.suite); !found)
    return report_error(found.error());
  return launch::run_guarded([&](launch::Supervisor& supervisor) {
    return ready.lane.empty() ? run_cases(supervisor, ready, *cases)
                              : run_lane(supervisor, ready, &*cases);
  });
}

}  // namespace lockstep::cli
