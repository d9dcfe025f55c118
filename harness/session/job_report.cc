#include "harness/session/job_report.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "checkers/judge.h"
#include "checkers/worlds.h"
#include "harness/history/hosts.h"
#include "harness/history/rank_places.h"
#include "harness/model/worlds.h"
#include "harness/session/conclude.h"
#include "harness/session/last_ends.h"

namespace lockstep::session {
namespace {

std::vector<RankStatus> rank_statuses(const Run& run) {
  std::map<Rank, RankStatus> statuses;
  for (const ProcessStart& start : run.starts) {
    if (start.role == Role::kRank && start.rank)
      statuses[*start.rank] = {.rank = *start.rank, .pid = history::own_pid(start.pid)};
  }
  for (const auto& [rank, end] : rank_ends(run)) {
    RankStatus& status = statuses[rank];
    status.rank = rank;
    status.pid = history::own_pid(end->pid);
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

/// From when it was asked for until lockstep let go of it.
double wall_s(const Run& run) {
  std::uint64_t last = run.ended_ns;
  for (const ProcessEnd& end : run.ends)
    last = std::max(last, end.at_ns);
  std::uint64_t first = run.plan.begun_ns;
  if (first == 0)
    first = run.starts.empty() ? last : run.starts.front().at_ns;
  return last > first ? static_cast<double>(last - first) / 1e9 : 0;
}

/// About values, samplers, marks of a suite: not worth a line, and a pass of nothing is none. That
/// a history is incomplete is.
bool had_nothing_to_examine(const Verdict& verdict) {
  const bool examined = std::any_of(verdict.examined.begin(), verdict.examined.end(),
                                    [](const auto& entry) { return entry.second > 0; });
  return verdict.outcome != Outcome::kFail && !examined && !verdict.lacks;
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

JudgedJob judged_job(Run run) {
  JudgedJob job;
  Report& report = job.report;
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
  job.worlds = worlds_of(std::move(run));
  const std::vector<World>& worlds = job.worlds;
  report.ranks = rank_statuses(worlds.back().run);
  const std::vector<checkers::Judgement> judged =
      checkers::judge_worlds(worlds, checkers::all_checkers());
  report.worlds = world_reports(worlds, judged);
  checkers::Judgement all = checkers::together(worlds, judged);
  report.findings = std::move(all.findings);
  report.checks = std::move(all.verdicts);
  conclude(report, worlds, judged);
  std::erase_if(report.checks, had_nothing_to_examine);
  return job;
}

Report job_report(Run run) { return judged_job(std::move(run)).report; }

const Run* run_of(const std::vector<World>& worlds, const Finding& finding) {
  for (std::size_t i = 0; i < worlds.size(); ++i) {
    if (finding.world == checkers::name_of(worlds, i))
      return &worlds[i].run;
  }
  return worlds.size() == 1 ? &worlds.front().run : nullptr;
}

std::vector<std::string> check_names() {
  std::vector<std::string> names;
  for (const auto& checker : checkers::all_checkers())
    names.emplace_back(checker->name());
  return names;
}

}  // namespace lockstep::session
