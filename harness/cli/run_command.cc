// `lockstep run`: the options and what a session is made of. All that is said goes to stderr;
// stdout is the program's.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "harness/base/clock.h"
#include "harness/base/version.h"
#include "harness/cli/commands.h"
#include "harness/cli/guarded_run.h"
#include "harness/entry/entry.h"
#include "harness/history/journal.h"
#include "harness/history/run_directory.h"
#include "harness/history/run_files.h"
#include "harness/launch/guard.h"
#include "harness/launch/run_job.h"
#include "harness/session/followed_job.h"
#include "harness/session/session.h"
#include "harness/verdict/exit_codes.h"

namespace lockstep::cli {
namespace {

void say(std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stderr);
  std::fflush(stderr);
}

// 126, 127, or nothing where the command can be started.
std::optional<Error> not_startable(const std::string& program, ExitCode& code) {
  const auto check = [&](const std::string& path) {
    if (access(path.c_str(), F_OK) != 0)
      return ExitCode::kNotFound;
    return access(path.c_str(), X_OK) == 0 ? ExitCode::kNothingFound : ExitCode::kNotExecutable;
  };
  code = ExitCode::kNotFound;
  if (program.find('/') != std::string::npos) {
    code = check(program);
  } else {
    const char* path = std::getenv("PATH");
    std::istringstream folders(path == nullptr ? "" : path);
    for (std::string folder; code != ExitCode::kNothingFound && std::getline(folders, folder, ':');)
      code = std::min(code, check((folder.empty() ? "." : folder) + "/" + program));
  }
  if (code == ExitCode::kNothingFound)
    return std::nullopt;
  const bool found = code == ExitCode::kNotExecutable;
  return Error{Error::Kind::kEnvironment,
               fmt::format("{} {}", program, found ? "is not executable" : "was not found"),
               found ? "chmod +x, or name its interpreter" : ""};
}

/// Of the command line, and of the file in the user's repository.
std::string allowed_lines(const RunCommand& command) {
  std::string lines;
  for (const std::string& allowed : command.allowed)
    lines += allowed + "\n";
  std::ifstream file("lockstep.allow");
  for (std::string line; std::getline(file, line);) {
    if (!line.empty() && line.front() != '#')
      lines += line + "\n";
  }
  return lines;
}

Plan plan_of(const RunCommand& command, const std::string& id) {
  Plan plan;
  plan.id = id;
  plan.command = command.command;
  plan.world_size = command.ranks;
  plan.required_checks = command.required;
  if (command.watch)
    plan.options["watch"] = fmt::format("{} %", command.watch_budget);
  if (const std::string allowed = allowed_lines(command); !allowed.empty())
    plan.options["allow"] = allowed;
  plan.versions["lockstep"] = kVersion;
  return plan;
}

Report header_of(const Plan& plan) {
  Report report;
  report.versions = plan.versions;
  if (plan.world_size > 0)
    report.world_size = plan.world_size;
  return report;
}

/// A look into /dev/shm and /tmp, no more: what is left of them is looked up when it is asked for.
void tell_dead_runs(const session::Notices& notices) {
  for (const history::DeadLive& dead : history::dead_live_directories())
    notices.tell("NOTE",
                 fmt::format("the lockstep of an earlier run was killed; `lockstep clean {}` ends "
                             "and removes what it left",
                             shown_path(std::filesystem::path(dead.history).parent_path())));
}

/// What makes the processes of the command write their histories.
std::map<std::string, std::string> environment_of(const RunCommand& command,
                                                  const std::string& live_directory,
                                                  const session::Notices& notices,
                                                  history::JournalWriter& journal) {
  entry::Entry entry = entry::prepare(command.command, live_directory,
                                      [&](const std::string& what) { notices.tell("NOTE", what); });
  if (command.ranks == 0 && !entry.environment.empty())
    entry.environment["LOCKSTEP_LAST_WORDS"] = "1";
  if (command.watch && !entry.environment.empty()) {
    entry.environment["LOCKSTEP_WATCH"] = entry::watch_script();
    entry.environment["LOCKSTEP_WATCH_BUDGET"] = fmt::format("{}", command.watch_budget / 100);
  }
  if (!entry.unseen.empty()) {
    notices.tell("UNSEEN", entry.unseen);
    // A record that cannot be written is seen as a gap by the reader.
    (void)journal.append(Note{.at_ns = now_ns(), .text = entry.unseen});
  }
  return std::move(entry.environment);
}

launch::RunJobOptions job_options(const RunCommand& command, const history::RunDirectory& directory,
                                  const session::Notices& notices,
                                  const session::Records& records) {
  launch::RunJobOptions options;
  options.command = command.command;
  options.ranks = command.ranks;
  options.logs_directory = directory.path() + "/logs";
  options.journal = &records.journal;
  options.follower = &records.follower;
  options.stop_when = records.certain_hang;
  options.sample_pause_max = session::kLookAtLeastEvery;
  options.keep = command.keep;
  options.allowed_survivors = command.allowed_survivors;
  options.all_threads = true;
  options.environment = environment_of(command, directory.live(), notices, records.journal);
  return options;
}

int supervise(launch::Supervisor& supervisor, const RunCommand& command) {
  Result<std::vector<KnownFinding>> known = std::vector<KnownFinding>();
  if (!command.baseline.empty())
    known = read_baseline(command.baseline);
  if (!known)
    return report_error(known.error());
  Result<GuardedRun> run = GuardedRun::create(supervisor, command.run_directory);
  if (!run)
    return report_error(run.error());
  history::RunDirectory& directory = run->directory;
  const HumanOptions human =
      human_options_here({.color = command.color}, directory.path(), STDERR_FILENO);
  const session::Clock clock = std::chrono::steady_clock::now;
  const session::Notices notices(clock, say);
  Plan plan = plan_of(command, directory.id());
  plan.begun_ns = session::ns_of(clock());
  say(human_header(header_of(plan), 0, human));
  tell_dead_runs(notices);
  session::Session session(plan, directory,
                           {.on_hang = command.on_hang,
                            .on_divergence = command.on_divergence,
                            .values = command.watch,
                            .stall_limit_s = command.stall_limit_s,
                            .time_limit_s = command.time_limit_s,
                            .several_hosts = !command.run_directory.empty() && command.ranks == 0,
                            .ranks_are_started = command.ranks > 0},
                           clock, notices);
  Result<Report> report = session.run(
      [&](const session::Records& records) -> Result<std::unique_ptr<session::LiveJob>> {
        auto job =
            launch::RunJob::start(supervisor, job_options(command, directory, notices, records));
        if (!job)
          return job.error();
        return std::make_unique<session::FollowedJob>(std::move(*job), records.follower);
      });
  if (!report)
    return report_error(report.error());
  if (!command.baseline.empty())
    use_baseline(*report, *known, command.required);
  if (auto saved = save_report(*report, directory.path()); !saved)
    return report_error(saved.error());
  HumanOptions whole = human;
  if (session.is_of_all_hosts())
    whole.directory = shown_path(std::filesystem::path(directory.path()).parent_path());
  say(human_end(*report, whole));
  return command.exit_as_program ? report->program_exit.value_or(report->exit_status)
                                 : report->exit_status;
}

}  // namespace

int run_run_command(const RunCommand& command) {
  if (command.command.empty())
    return report_error({Error::Kind::kUsage, "run needs a command after --",
                         "lockstep run -n 2 -- python train.py"});
  ExitCode code{};
  if (const auto error = not_startable(command.command.front(), code)) {
    report_error(*error);
    return status_of(code);
  }
  return launch::run_guarded(
      [&](launch::Supervisor& supervisor) { return supervise(supervisor, command); });
}

}  // namespace lockstep::cli
