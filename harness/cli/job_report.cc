#include "harness/cli/job_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "checkers/judge.h"
#include "checkers/worlds.h"
#include "harness/history/rank_places.h"
#include "harness/model/call_site.h"
#include "harness/model/failure.h"
#include "harness/model/group_view.h"
#include "harness/model/worlds.h"
#include "harness/verdict/exit_codes.h"

namespace lockstep::cli {
namespace {

constexpr std::int32_t kKilledBySignal = 128;  // as a shell says it

std::int32_t shell_status(const ProcessEnd& end) {
  return end.signal ? kKilledBySignal + *end.signal : end.exit_status.value_or(0);
}

/// The last end of each rank: one that was started again counts as it ended at last.
std::map<Rank, const ProcessEnd*> rank_ends(const Run& run) {
  std::map<Rank, const ProcessEnd*> ends;
  for (const ProcessEnd& end : run.ends) {
    if (end.role == Role::kRank && end.rank)
      ends[*end.rank] = &end;
  }
  return ends;
}

std::vector<RankStatus> rank_statuses(const Run& run) {
  std::map<Rank, RankStatus> statuses;
  for (const ProcessStart& start : run.starts) {
    if (start.role == Role::kRank && start.rank)
      statuses[*start.rank] = {.rank = *start.rank, .pid = start.pid};
  }
  for (const auto& [rank, end] : rank_ends(run)) {
    RankStatus& status = statuses[rank];
    status.rank = rank;
    status.pid = end->pid;
    status.exited = end->exit_status;
    status.signaled = end->signal;
  }
  std::vector<RankStatus> listed;
  for (auto& [rank, status] : statuses) {
    if (const Process* process = run.process_of(rank))
      status.host = process->host;
    listed.push_back(std::move(status));
  }
  return listed;
}

/// Lockstep started it: nobody was this rank before.
bool is_ours(const Run& run, const ProcessEnd& end) {
  const auto first = std::find_if(run.starts.begin(), run.starts.end(),
                                  [&](const auto& start) { return start.rank == end.rank; });
  return first == run.starts.end() || first->pid == end.pid;
}

/// What the program ended with: the user's own launcher, or the first of our ranks that failed.
std::optional<std::int32_t> program_exit(const Run& run) {
  std::optional<std::int32_t> status;
  for (const ProcessEnd& end : run.ends) {
    if (history::is_command(run, end.pid))
      return shell_status(end);
    const bool of_a_rank = end.role == Role::kRank || end.role == Role::kBeside;
    if (of_a_rank && is_ours(run, end) && status.value_or(0) == 0)
      status = shell_status(end);
  }
  return status;
}

/// From its start until lockstep let go of it.
double wall_s(const Run& run) {
  std::uint64_t last = run.ended_ns;
  for (const ProcessEnd& end : run.ends)
    last = std::max(last, end.at_ns);
  const std::uint64_t first = run.starts.empty() ? last : run.starts.front().at_ns;
  return last > first ? static_cast<double>(last - first) / 1e9 : 0;
}

const Acted* act(const Run& run, std::string_view action) {
  const auto at = std::find_if(run.acted.begin(), run.acted.end(),
                               [&](const Acted& acted) { return acted.action == action; });
  return at == run.acted.end() ? nullptr : &*at;
}

/// Of the command: its own exception, or one that it passed on. "; it raised ValueError: x at
/// t.py:3"
std::string what_it_raised(const Run& run) {
  for (const Raised& raised : run.raised) {
    if (!raised.rank)
      return fmt::format("; it raised {}{}", first_line(raised.text),
                         at_site(site_of(Rank{}, raised.raised_at.frames, "raised")));
  }
  return "";
}

std::string who_was_killed(const Run& run) {
  const LauncherEnd* const killed = launcher_killed(run);
  return killed == nullptr ? "" : "; " + in_words(*killed);
}

/// A rank of this world that ended badly at last, or was ended by us although it had not been
/// interrupted: something must explain it. Empty if there is none.
std::string unexplained_rank(const Run& run) {
  for (const auto& [rank, end] : rank_ends(run)) {
    if (shell_status(*end) == 0 || was_meant(run, *end))
      continue;
    return end->our_signal
               ? fmt::format("rank {} was ended by lockstep ({})", rank.value, end->our_reason)
               : fmt::format("rank {} ended with status {} and nothing explains it", rank.value,
                             shell_status(*end));
  }
  return "";
}

/// A rank, or else the command that started them. What was found of a world, and be it a note,
/// explains how it ended.
std::string unexplained(const std::vector<World>& worlds,
                        const std::vector<checkers::Judgement>& judged) {
  for (std::size_t i = 0; i < worlds.size(); ++i) {
    std::string rank = judged[i].findings.empty() ? unexplained_rank(worlds[i].run) : "";
    if (!rank.empty())
      return worlds.size() == 1 ? rank : fmt::format("{}: {}", checkers::name_of(worlds, i), rank);
  }
  const Run& run = worlds.back().run;
  for (const ProcessEnd& end : run.ends) {
    if (history::is_command(run, end.pid) && !end.our_signal && shell_status(end) != 0)
      return fmt::format("the command ended with status {}, and no rank explains it{}{}",
                         shell_status(end), what_it_raised(run), who_was_killed(run));
  }
  return "";
}

/// The first required check that could not decide; empty if none.
std::string undecided_required(const Run& run, const std::vector<Verdict>& verdicts) {
  for (const Verdict& verdict : verdicts) {
    const auto& required = run.plan.required_checks;
    const bool asked = std::find(required.begin(), required.end(), verdict.name) != required.end();
    if (asked && (verdict.outcome == Outcome::kUndecided || verdict.outcome == Outcome::kSkipped))
      return fmt::format("{}: {}", verdict.name, verdict.reason);
  }
  return "";
}

/// About values, samplers, marks of a suite: not worth a line, and a pass of nothing is none. That
/// a history is incomplete is.
bool had_nothing_to_examine(const Verdict& verdict) {
  const bool examined = std::any_of(verdict.examined.begin(), verdict.examined.end(),
                                    [](const auto& entry) { return entry.second > 0; });
  return verdict.outcome != Outcome::kFail && !examined && !lacks_evidence(verdict);
}

bool has_group(const Run& run) {
  return std::any_of(run.processes.begin(), run.processes.end(),
                     [](const Process& process) { return !process.groups.empty(); });
}

/// What there was to judge, where no process group was seen.
std::string nothing_seen(const std::vector<World>& worlds, bool no_rank) {
  if (no_rank)
    return "no rank was seen, so nothing of one was judged";
  const bool seen = std::any_of(worlds.begin(), worlds.end(),
                                [](const World& world) { return has_group(world.run); });
  return seen ? "" : "no process group was seen, only how ranks ended was judged";
}

void conclude(Report& report, const std::vector<World>& worlds,
              const std::vector<checkers::Judgement>& judged) {
  const auto say = [&](Outcome outcome, ExitCode code, std::string reason) {
    report.outcome = outcome;
    report.exit_status = status_of(code);
    report.reason = std::move(reason);
  };
  const bool found =
      std::any_of(report.findings.begin(), report.findings.end(),
                  [](const Finding& finding) { return finding.severity == Severity::kError; });
  const Run& run = worlds.back().run;
  // Of two worlds that cannot be told apart nobody has a rank that both have.
  const bool no_rank = worlds.size() == 1 && report.ranks.empty() &&
                       std::none_of(run.processes.begin(), run.processes.end(),
                                    [](const Process& process) { return process.beside; });
  report.unseen = report.findings.empty() ? nothing_seen(worlds, no_rank) : "";
  const std::string unsaid = unexplained(worlds, judged);
  const std::string required = undecided_required(run, report.checks);
  if (found)
    say(Outcome::kFail, ExitCode::kFinding, "");
  else if (const Acted* interrupted = act(run, "interrupted"))
    say(Outcome::kUndecided, ExitCode::kInterrupted,
        fmt::format("interrupted ({})", interrupted->reason));
  else if (no_rank && report.program_exit.value_or(0) != 0)
    say(Outcome::kUndecided, ExitCode::kNoRank,
        fmt::format("the command ended with status {}, and no process of it became a rank{}",
                    *report.program_exit, what_it_raised(run)));
  else if (!unsaid.empty() || !required.empty())
    say(Outcome::kUndecided, ExitCode::kUndecided, unsaid.empty() ? required : unsaid);
  else
    say(no_rank ? Outcome::kSkipped : Outcome::kPass, ExitCode::kNothingFound, "");
}

std::vector<WorldReport> world_reports(const std::vector<World>& worlds,
                                       const std::vector<checkers::Judgement>& judged) {
  std::vector<WorldReport> reports;
  for (std::size_t i = 0; worlds.size() > 1 && i < worlds.size(); ++i)
    reports.push_back({.name = checkers::name_of(worlds, i),
                       .world_size = worlds[i].run.plan.world_size,
                       .outcome = judged[i].outcome,
                       .ranks = rank_statuses(worlds[i].run)});
  return reports;
}

}  // namespace

Report job_report(Run run) {
  Report report;
  report.run = run.plan.id;
  report.command = run.plan.command;
  report.versions = run.plan.versions;
  for (const Process& process : run.processes) {
    if (!process.torch_version.empty())
      report.versions["torch"] = process.torch_version;
  }
  if (run.plan.world_size > 0)
    report.world_size = run.plan.world_size;
  report.program_exit = program_exit(run);
  report.wall_s = wall_s(run);
  const std::vector<World> worlds = worlds_of(std::move(run));
  report.ranks = rank_statuses(worlds.back().run);
  const std::vector<checkers::Judgement> judged =
      checkers::judge_worlds(worlds, checkers::all_checkers());
  report.worlds = world_reports(worlds, judged);
  checkers::Judgement all = checkers::together(worlds, judged);
  report.findings = std::move(all.findings);
  report.checks = std::move(all.verdicts);
  conclude(report, worlds, judged);
  std::erase_if(report.checks, had_nothing_to_examine);
  return report;
}

std::vector<std::string> check_names() {
  std::vector<std::string> names;
  for (const auto& checker : checkers::all_checkers())
    names.emplace_back(checker->name());
  return names;
}

}  // namespace lockstep::cli
