// `lockstep run`: from a command line to a report, and what is said meanwhile. All of it goes to
// stderr; stdout is the program's.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <sstream>

#include "checkers/exit/stuck_at_exit.h"
#include "checkers/hang/deadlock.h"
#include "checkers/hang/rendezvous.h"
#include "checkers/hang/stall.h"
#include "checkers/worlds.h"
#include "harness/base/clock.h"
#include "harness/base/version.h"
#include "harness/cli/commands.h"
#include "harness/cli/guarded_run.h"
#include "harness/entry/entry.h"
#include "harness/history/follower.h"
#include "harness/history/journal.h"
#include "harness/history/run_directory.h"
#include "harness/history/run_files.h"
#include "harness/launch/guard.h"
#include "harness/launch/run_job.h"
#include "harness/model/group_view.h"
#include "harness/report/pieces.h"
#include "harness/session/job_report.h"
#include "harness/session/rank_activity.h"
#include "harness/symbols/closed_run.h"
#include "harness/verdict/exit_codes.h"

namespace lockstep::cli {
namespace {

using Clock = std::chrono::steady_clock;
using Kind = launch::RunEvent::Kind;

// Of a job that stands still for hours: each look is kept.
constexpr std::chrono::minutes kProbeAtLeastEvery{5};
constexpr std::chrono::milliseconds kLookAtStartAfter{1'000};
constexpr std::chrono::milliseconds kLookAtJoiningAfter{2'000};  // Of the failure of a rank.
constexpr std::chrono::seconds kStartMayTake{60};  // Imports, downloads: nothing is recorded yet.

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

Plan plan_of(const RunCommand& command, const std::string& id) {
  Plan plan;
  plan.id = id;
  plan.command = command.command;
  plan.world_size = command.ranks;
  plan.required_checks = command.required;
  plan.versions["lockstep"] = kVersion;
  return plan;
}

/// One job: what runs, what is told of it, and when it is ended.
class Session {
 public:
  Session(launch::Supervisor& supervisor, const RunCommand& command,
          history::RunDirectory& directory)
      : supervisor_(supervisor),
        command_(command),
        directory_(directory),
        human_(human_options_here({.color = command.color}, directory.path(), STDERR_FILENO)),
        plan_(plan_of(command, directory.id())) {}

  Result<Report> run() {
    Report header = job_report_header();
    say(human_header(header, 0, human_));
    tell_dead_runs();
    if (auto written = directory_.write_plan(plan_); !written)
      return written.error();
    Result<history::JournalWriter> journal = history::JournalWriter::create(directory_.journal());
    if (!journal)
      return journal.error();
    journal_ = &*journal;
    if (auto followed = follow(); !followed)
      return followed.error();
    if (auto closed = journal->close(); !closed)
      return closed.error();
    if (auto written = directory_.write_plan(plan_); !written)  // With the size that was seen.
      return written.error();
    symbols::Resolver resolver;
    Result<Run> closed = symbols::close_and_open(directory_, resolver);
    if (!closed)
      return closed.error();
    return session::job_report(std::move(*closed));
  }

 private:
  [[nodiscard]] Report job_report_header() const {
    Report report;
    report.versions = plan_.versions;
    if (command_.ranks > 0)
      report.world_size = command_.ranks;
    return report;
  }

  /// A look into /dev/shm and /tmp, no more: what is left of them is looked up when it is asked
  /// for.
  void tell_dead_runs() {
    for (const history::DeadLive& dead : history::dead_live_directories())
      notice("NOTE",
             fmt::format("the lockstep of an earlier run was killed; `lockstep clean {}` ends "
                         "and removes what it left",
                         shown_path(std::filesystem::path(dead.history).parent_path())));
  }

  launch::RunJobOptions job_options(history::Follower& follower) {
    launch::RunJobOptions options;
    options.command = command_.command;
    options.ranks = command_.ranks;
    options.logs_directory = directory_.path() + "/logs";
    options.journal = journal_;
    options.follower = &follower;
    options.stop_when = [this](const Run& live) -> std::optional<std::string> {
      return hang_told_ ? std::nullopt : checkers::certain_deadlock_of_all(live);
    };
    options.learn_quiet = true;
    options.sample_pause_max = kProbeAtLeastEvery;
    options.keep = command_.keep;
    options.allowed_survivors = command_.allowed_survivors;
    options.all_threads = true;
    entry::Entry entry = entry::prepare(command_.command, directory_.live(),
                                        [this](const std::string& what) { notice("NOTE", what); });
    options.environment = std::move(entry.environment);
    if (command_.ranks == 0 && !options.environment.empty())
      options.environment["LOCKSTEP_LAST_WORDS"] = "1";
    if (!entry.unseen.empty()) {
      notice("UNSEEN", entry.unseen);
      record(Note{.at_ns = now_ns(), .text = entry.unseen});
    }
    return options;
  }

  Result<void> follow() {
    history::Follower follower(directory_.live(), directory_.journal(), plan_);
    auto job = launch::RunJob::start(supervisor_, job_options(follower));
    if (!job)
      return job.error();
    const std::string ended_because = watch(**job, follower);
    const launch::EndReport left =
        ended_because.empty() ? (*job)->clear() : (*job)->end(ended_because);
    tell_leftovers(left);
    plan_.world_size = (*job)->world_size();
    return {};
  }

  /// Waits until the job is over, or must be ended: why. Empty: it is over.
  std::string watch(launch::RunJob& job, history::Follower& follower) {
    while (true) {
      const launch::RunEvent event = job.wait(std::min(next_notice(job), next_look_at_joining_));
      switch (event.kind) {
        case Kind::kOver:
          return "";
        case Kind::kStop:
          if (tell_hang(event.text, job, follower))
            return "deadlock: " + event.text;
          break;
        case Kind::kInterrupted:
          job.sample(/*before_the_end=*/true);
          tell_activity("STOPPING", event.text, job, follower);
          record(Acted{.at_ns = event.since_ns != 0 ? event.since_ns : now_ns(),
                       .action = "interrupted",
                       .reason = event.text});
          return event.text;
        case Kind::kDeadline:
          if (Clock::now() >= next_look_at_joining_) {
            if (const auto why = look_at_joining(job, follower);
                why && tell_hang(*why, job, follower))
              return "deadlock: " + *why;
            break;
          }
          if (stalled_for(job) >= stall_limit())
            return give_up(job, follower);
          if (stalled_for(job) >= notice_after_)
            tell_stall(job, follower);
          else if (stalled_for(job) >= next_look())
            look_before_notice(job, follower);
          break;
        case Kind::kEnded:
          follower.poll();
          if (command_.ranks > 0 && a_rank_failed(follower) && !hang_told_)
            next_look_at_joining_ = Clock::now() + kLookAtJoiningAfter;
          break;
        case Kind::kOrphaned:
          notice("ORPHANS", event.text);
          break;
        case Kind::kRank:
          break;
      }
    }
  }

  /// True if the job is to be ended for it.
  bool tell_hang(const std::string& what, const launch::RunJob& job,
                 const history::Follower& follower) {
    tell_activity("DEADLOCK", what, job, follower);
    hang_told_ = true;
    return command_.on_hang == OnHang::kEnd;
  }

  /// Before there is a group no history tells who waits for whom. The pauses grow with the time
  /// that has passed.
  std::optional<std::string> look_at_joining(launch::RunJob& job,
                                             const history::Follower& follower) {
    next_look_at_joining_ = Clock::time_point::max();
    if (has_a_group(follower))
      return std::nullopt;
    job.sample();
    auto why = checkers::cannot_all_join(follower.run());
    if (!why)
      next_look_at_joining_ =
          Clock::now() + std::clamp<Clock::duration>(stalled_for(job) / 2, kLookAtJoiningAfter,
                                                     kProbeAtLeastEvery);
    return why;
  }

  static Clock::duration stalled_for(const launch::RunJob& job) {
    return Clock::now() - job.last_move();
  }

  [[nodiscard]] Clock::duration stall_limit() const {
    return command_.stall_limit_s > 0 ? std::chrono::duration_cast<Clock::duration>(
                                            std::chrono::duration<double>(command_.stall_limit_s))
                                      : Clock::duration::max();
  }

  /// Each notice comes after twice the time of the one before, until something moves.
  Clock::time_point next_notice(const launch::RunJob& job) {
    if (job.last_move() != moved_) {
      notice_after_ = std::min<Clock::duration>(checkers::kStallIsNoticedAfter, stall_limit());
      looks_ = 0;
    }
    moved_ = job.last_move();
    return moved_ + std::min<Clock::duration>(next_look(), stall_limit());
  }

  /// Before the notice: at the beginning, which is when ranks come to init_process_group, and
  /// half-way.
  [[nodiscard]] Clock::duration next_look() const {
    return looks_ == 0   ? std::min<Clock::duration>(kLookAtStartAfter, notice_after_ / 4)
           : looks_ == 1 ? notice_after_ / 2
                         : notice_after_;
  }

  std::string give_up(launch::RunJob& job, const history::Follower& follower) {
    job.sample(/*before_the_end=*/true);
    std::string why = fmt::format("--stall-limit {} s", command_.stall_limit_s);
    tell_activity("STALLED", why, job, follower);
    record(Acted{.at_ns = now_ns(), .action = "deadline", .reason = why});
    return why;
  }

  /// Before that its ranks import, those of its next training, too, or it has none: that nothing
  /// is seen of them is no stall.
  static bool has_a_group(const history::Follower& follower) {
    const Run& run = follower.run();
    return std::any_of(run.processes.begin(), run.processes.end(), [&](const Process& process) {
      return !process.groups.empty() && !has_ended(run, process.pid);
    });
  }

  /// The others may wait for it, and nothing else tells of it.
  static bool a_rank_failed(const history::Follower& follower) {
    const std::vector<ProcessEnd>& ends = follower.run().ends;
    return std::any_of(ends.begin(), ends.end(), [](const ProcessEnd& end) {
      return end.role == Role::kRank && end.failed();
    });
  }

  /// What is there when the notice comes, too, has lasted. (Whoever imports moves.)
  void look_before_notice(launch::RunJob& job, const history::Follower& follower) {
    if (++looks_ > 1 || !has_a_group(follower))
      job.sample();
  }

  void tell_stall(launch::RunJob& job, const history::Follower& follower) {
    job.sample();
    const bool moved = stalled_for(job) < notice_after_;
    notice_after_ *= 2;
    const auto stalled = std::chrono::duration_cast<std::chrono::seconds>(stalled_for(job));
    if (moved || (session::one_imports(follower.run()) && stalled < kStartMayTake))
      return;
    for (const std::string& line : checkers::on_their_way_out(follower.run()))
      notice("LEAVING", line);
    if (has_a_group(follower) || a_rank_failed(follower) || stalled >= kStartMayTake)
      tell_activity("STALLED", fmt::format("no rank has moved for {} s", stalled.count()), job,
                    follower);
  }

  void tell_activity(std::string_view word, const std::string& what, const launch::RunJob& job,
                     const history::Follower& follower) {
    notice(word, what);
    RankSet living;
    for (const launch::JobProcess* const process : job.processes()) {
      if (process->rank && process->lives())
        living.insert(*process->rank);
    }
    for (const std::string& line : session::rank_activity(follower.run(), living, now_ns()))
      say(fmt::format("{:>{}}{}\n", "", report::kDetailIndent, line));
  }

  void tell_leftovers(const launch::EndReport& report) {
    for (const os::ProcessStat& process : report.spared)
      notice("KEPT",
             fmt::format("process {} ({}) was left as it is", process.id.pid, process.name));
    for (const os::EndedProcess& process : report.leftovers) {
      const std::string what =
          fmt::format("process {} ({}) was left behind and {}", process.id.pid, process.name,
                      process.gone ? "was ended" : "could not be ended");
      notice("LEFT", what);
    }
  }

  void notice(std::string_view word, std::string_view text) {
    const double elapsed_s = static_cast<double>(now_ns() - begun_ns_) / 1e9;
    say(fmt::format("{:>{}}  {}  {}\n", word, report::kWordWidth, report::duration(elapsed_s),
                    text));
  }

  template <class E>
  void record(const E& event) {
    // A record that cannot be written is seen as a gap by the reader.
    (void)journal_->append(event);
  }

  launch::Supervisor& supervisor_;
  const RunCommand& command_;
  history::RunDirectory& directory_;
  HumanOptions human_;
  Plan plan_;
  history::JournalWriter* journal_{};
  const std::uint64_t begun_ns_{now_ns()};
  bool hang_told_{};
  Clock::time_point moved_{};
  int looks_{};  // Since then, before the notice.
  Clock::duration notice_after_{checkers::kStallIsNoticedAfter};
  Clock::time_point next_look_at_joining_{Clock::time_point::max()};
};

int supervise(launch::Supervisor& supervisor, const RunCommand& command) {
  Result<GuardedRun> run = GuardedRun::create(supervisor, command.run_directory);
  if (!run)
    return report_error(run.error());
  history::RunDirectory& directory = run->directory;
  const Result<Report> report = Session(supervisor, command, directory).run();
  if (!report)
    return report_error(report.error());
  if (auto saved = save_report(*report, directory.path()); !saved)
    return report_error(saved.error());
  const HumanOptions human =
      human_options_here({.color = command.color}, directory.path(), STDERR_FILENO);
  say(human_end(*report, human));
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
