#include "checkers/worlds.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>

#include "checkers/exit/rank_failed.h"
#include "checkers/hang/deadlock.h"
#include "harness/history/hosts.h"
#include "harness/history/rank_places.h"
#include "harness/model/ending.h"
#include "harness/model/group_view.h"

namespace lockstep::checkers {
namespace {

constexpr std::size_t kTasksMax = 8;

bool is_error(const Finding& finding) { return finding.severity == Severity::kError; }

/// What a launcher can make good: ranks that failed, or left, or waited for those.
bool is_of_ends_or_progress(const Finding& finding) {
  const Family family = family_of(finding.code);
  return finding.code == Code::kRankDied || finding.code == Code::kLeftEarly ||
         family == Family::kStart || family == Family::kWait || family == Family::kLoopExit;
}

const ProcessEnd* end_of_command(const Run& run) {
  const auto at = std::find_if(run.ends.begin(), run.ends.end(), [&](const ProcessEnd& end) {
    return history::is_command(run, end.pid);
  });
  return at == run.ends.end() ? nullptr : &*at;
}

bool command_ended_well(const Run& run) {
  const ProcessEnd* const end = end_of_command(run);
  return end != nullptr && !end->our_signal && end->exit_status == 0;
}

/// The elastic launcher that had started it started all of them again; null: it did not.
const World* started_again(const std::vector<World>& worlds, std::size_t number) {
  const World& world = worlds[number];
  for (std::size_t i = number + 1; i < worlds.size(); ++i) {
    if (worlds[i].started_by == world.started_by && world.started_by != 0 &&
        worlds[i].attempt > world.attempt)
      return &worlds[i];
  }
  return nullptr;
}

/// None was in a group yet, and who had started each of them started it once more.
bool was_tried_again(const std::vector<World>& worlds, std::size_t number) {
  const World& world = worlds[number];
  const bool in_group =
      std::any_of(world.run.processes.begin(), world.run.processes.end(),
                  [](const Process& process) { return process.rank && !process.groups.empty(); });
  return !in_group && world.started_by != 0 &&
         std::any_of(worlds.begin() + static_cast<std::ptrdiff_t>(number) + 1, worlds.end(),
                     [&](const World& later) {
                       return later.started_by == world.started_by &&
                              world.ranks.minus(later.ranks).empty();
                     });
}

std::map<Rank, std::string> commands_of(const World& world) {
  std::map<Rank, std::string> commands;
  for (const ProcessStart& start : world.run.starts) {
    const bool is_whole = !start.command.empty() && !start.command.ends_with("...");
    if (start.role == Role::kRank && start.rank && is_whole)
      commands[*start.rank] = start.command;
  }
  return commands;
}

bool ended_well(const World& world) {
  return std::all_of(world.run.ends.begin(), world.run.ends.end(), [](const ProcessEnd& end) {
    return end.role != Role::kRank || end.exit_status == 0;
  });
}

/// A launcher that was started anew ran all of its ranks again by the same command lines, and these
/// ended well: somebody looks at how the launcher ends, and tries again. (What one program starts
/// one after the other are phases of it.)
bool was_run_again(const std::vector<World>& worlds, std::size_t number) {
  const World& world = worlds[number];
  const std::map<Rank, std::string> commands = commands_of(world);
  return !commands.empty() && commands.size() == world.ranks.size() && world.started_by != 0 &&
         std::any_of(worlds.begin() + static_cast<std::ptrdiff_t>(number) + 1, worlds.end(),
                     [&](const World& later) {
                       return later.started_by != 0 && later.started_by != world.started_by &&
                              !later.lived_with(world) && commands_of(later) == commands &&
                              ended_well(later);
                     });
}

/// What its ranks ended with is what they had to tell their launcher, which ended well: they all
/// ended alike, or it ended the others because of it; and none of them died of an exception that it
/// printed, or of a signal that nobody of the job had sent. Their status.
std::optional<std::int32_t> told_to_launcher(const World& world) {
  const Run& run = world.run;
  if (!command_ended_well(run))
    return std::nullopt;
  std::optional<std::int32_t> status;
  RankSet ended, asked;
  for (const ProcessEnd& end : run.ends) {
    if (end.role != Role::kRank || !end.rank)
      continue;
    const bool by_launcher = ending_of(run, end).as_asked && end.sender->pid == world.started_by;
    const bool of_its_own = end.exit_status.value_or(0) != 0 && !end.our_signal &&
                            (!status || status == end.exit_status);
    if (by_launcher)
      asked.insert(*end.rank);
    else if (of_its_own)
      ended.insert(*end.rank);
    else
      return std::nullopt;
    if (!by_launcher)
      status = end.exit_status;
  }
  const bool all = ended.size() + asked.size() >= ranks_of(run).size();
  const bool printed = std::any_of(run.raised.begin(), run.raised.end(),
                                   [](const Raised& raised) { return raised.rank.has_value(); });
  if (!status || !all || printed || (ended.size() < 2 && asked.empty()))
    return std::nullopt;
  return status;
}

/// "torchrun (pid 4711)".
std::string launcher_of(const World& world) {
  for (const ProcessStart& start : world.run.starts) {
    if (start.parent == world.started_by && !start.parent_name.empty())
      return fmt::format("{} ({})", start.parent_name, history::words_of_pid(start.parent));
  }
  return history::words_of_pid(world.started_by);
}

void make_note(Finding& finding, const std::string& why) {
  finding.severity = Severity::kNote;
  std::erase(finding.also, Code::kHiddenFailure);
  std::erase_if(finding.evidence, [](const Evidence& line) { return line.text == kHidden; });
  finding.tell(EvidenceKind::kEnd, {}, "{}", why);
}

/// The statuses are all there is to say, and nobody is to blame for one.
void tell_status(Finding& finding, const World& world, std::int32_t status) {
  finding.headline = fmt::format("{} ranks ended with status {}; the job ended well",
                                 ranks_of(world.run).size(), status);
  finding.culprits = {};
  finding.affected = ranks_of(world.run);
  finding.evidence.clear();
  finding.consequences = 0;
  for (const ProcessEnd& end : world.run.ends) {
    if (end.role == Role::kRank && end.rank && !end.exit_status && end.sender)
      finding.tell(EvidenceKind::kEnd, {*end.rank}, "{} was ended by {}", words({*end.rank}),
                   history::words_of(*end.sender));
  }
}

/// Empty if its launcher made nothing of how its ranks failed.
std::string how_it_was_handled(const std::vector<World>& worlds, std::size_t number,
                               std::optional<std::int32_t> told) {
  const World& world = worlds[number];
  if (const World* const next = started_again(worlds, number))
    return fmt::format("this was attempt {}: {} started all ranks again (attempt {})",
                       world.attempt, launcher_of(world), next->attempt);
  if (was_tried_again(worlds, number))
    return fmt::format("{} started {} again", launcher_of(world), words(world.ranks));
  if (command_ended_well(world.run) && was_run_again(worlds, number))
    return "its command was run again, and ended well";
  return told ? "the command that started them ended with status 0" : "";
}

void note_what_was_handled(const std::vector<World>& worlds, std::size_t number,
                           Judgement& judgement) {
  const std::optional<std::int32_t> told = told_to_launcher(worlds[number]);
  const std::string how = how_it_was_handled(worlds, number, told);
  if (how.empty())
    return;
  const auto is_meant = [](const Finding& finding) {
    return is_error(finding) && is_of_ends_or_progress(finding);
  };
  for (Finding& finding : judgement.findings) {
    if (!is_meant(finding))
      continue;
    if (told && finding.code == Code::kRankDied)
      tell_status(finding, worlds[number], *told);
    make_note(finding, how);
  }
  for (Verdict& verdict : judgement.verdicts) {
    for (Finding& finding : verdict.findings) {
      if (is_meant(finding))
        make_note(finding, how);
    }
    if (verdict.outcome == Outcome::kFail &&
        std::none_of(verdict.findings.begin(), verdict.findings.end(), is_error))
      verdict.outcome = Outcome::kPass;
  }
  if (judgement.outcome == Outcome::kFail &&
      std::none_of(judgement.findings.begin(), judgement.findings.end(), is_error))
    judgement.outcome = Outcome::kPass;
}

/// The tasks of one mpirun or srun are there at one time, and each is a world of its own.
std::optional<Finding> began_apart(const std::vector<World>& worlds) {
  std::map<std::int32_t, const World*> by_task;
  for (const World& world : worlds) {
    const bool with_others = std::all_of(by_task.begin(), by_task.end(), [&](const auto& other) {
      return other.second->lived_with(world);
    });
    if (world.task && world.tasks > 1 && world.run.plan.world_size > 0 && with_others)
      by_task.emplace(*world.task, &world);
  }
  if (by_task.size() < 2)
    return std::nullopt;
  const World& first = *by_task.begin()->second;
  Finding finding{.code = Code::kNeverJoined, .severity = Severity::kWarning};
  finding.headline = fmt::format(
      "{} tasks that were started together are {} jobs that never met: each has a rank 0 of its "
      "own",
      by_task.size(), by_task.size());
  for (const auto& [task, world] : by_task) {
    if (finding.evidence.size() < kTasksMax)
      finding.tell(EvidenceKind::kProcess, world->ranks,
                   "task {} of {}: {} of world size {}, started by {}", task, world->tasks,
                   words(world->ranks), world->run.plan.world_size, launcher_of(*world));
  }
  finding.affected = first.ranks;
  finding.cause = "each task ran a launcher for itself, and nothing told these of each other";
  finding.confidence = Confidence::kLikely;
  finding.help =
      "torchrun: --nnodes, --rdzv-backend=c10d and --rdzv-endpoint=HOST:PORT, the same for all "
      "tasks; or let mpirun or srun start the program itself, one task a rank, and set RANK, "
      "WORLD_SIZE, MASTER_ADDR and MASTER_PORT from what it tells";
  return finding;
}

bool is_left_behind(const Finding& finding) {
  return family_of(finding.code) == Family::kLeftBehind;
}

/// What a world left behind after another one had come to grief follows from that: the job was over
/// for both.
void count_what_was_left(std::vector<Finding>& findings) {
  const auto is_grief = [](const Finding& finding) {
    return is_error(finding) && !is_left_behind(finding);
  };
  const auto first = std::find_if(findings.begin(), findings.end(), is_grief);
  if (first == findings.end())
    return;
  Finding grief = *first;
  std::erase_if(findings, [&](const Finding& finding) {
    if (!is_error(finding) || !is_left_behind(finding) || finding.world == grief.world)
      return false;
    ++grief.consequences;
    tell_later(finding, grief);
    return true;
  });
  *std::find_if(findings.begin(), findings.end(), is_grief) = std::move(grief);
}

/// The worst first.
int weight(Outcome outcome) {
  return outcome == Outcome::kFail        ? 0
         : outcome == Outcome::kUndecided ? 1
         : outcome == Outcome::kPass      ? 2
                                          : 3;
}

void add(Verdict& sum, const Verdict& more, const std::string& world) {
  const bool worse = weight(more.outcome) < weight(sum.outcome);
  if (worse || (more.outcome == sum.outcome && sum.reason.empty())) {
    sum.outcome = more.outcome;
    sum.reason = more.reason.empty() ? "" : fmt::format("{}: {}", world, more.reason);
    sum.lacks = more.lacks;
  }
  for (const auto& [noun, count] : more.examined)
    sum.examined[noun] += count;
  sum.findings.insert(sum.findings.end(), more.findings.begin(), more.findings.end());
  sum.measures.insert(sum.measures.end(), more.measures.begin(), more.measures.end());
}

}  // namespace

std::string name_of(const std::vector<World>& worlds, std::size_t number) {
  if (worlds.size() < 2)
    return "";
  const bool beside = std::any_of(worlds.begin(), worlds.end(), [&](const World& other) {
    return &other != &worlds[number] && other.lived_with(worlds[number]);
  });
  return fmt::format("{} {} of {}", beside ? "job" : "phase", number + 1, worlds.size());
}

std::vector<Judgement> judge_worlds(const std::vector<World>& worlds, const Checkers& checkers) {
  std::vector<Judgement> judgements;
  for (std::size_t i = 0; i < worlds.size(); ++i) {
    judgements.push_back(judge(worlds[i].run, checkers));
    note_what_was_handled(worlds, i, judgements.back());
  }
  return judgements;
}

Judgement together(const std::vector<World>& worlds, std::vector<Judgement> judgements) {
  if (judgements.size() == 1)
    return std::move(judgements.front());
  Judgement all;
  if (std::optional<Finding> apart = began_apart(worlds))
    all.findings.push_back(std::move(*apart));
  for (std::size_t i = 0; i < judgements.size(); ++i) {
    const std::string world = name_of(worlds, i);
    for (Finding& finding : judgements[i].findings) {
      finding.world = world;
      finding.headline = fmt::format("{}: {}", world, finding.headline);
      all.findings.push_back(std::move(finding));
    }
    for (std::size_t k = 0; k < judgements[i].verdicts.size(); ++k) {
      const Verdict& verdict = judgements[i].verdicts[k];
      if (i == 0)
        all.verdicts.push_back({.name = verdict.name, .outcome = Outcome::kSkipped});
      add(all.verdicts[k], verdict, world);
    }
    if (i == 0 || weight(judgements[i].outcome) < weight(all.outcome))
      all.outcome = judgements[i].outcome;
  }
  count_what_was_left(all.findings);
  return all;
}

std::optional<std::string> certain_deadlock_of_all(const Run& live) {
  const std::vector<World> worlds = worlds_at_one_time(live);
  if (worlds.empty())
    return certain_deadlock(live);
  std::optional<std::string> first;
  for (const World& world : worlds) {
    if (world.until_ns != kNeverNs)
      continue;  // It is over.
    std::optional<std::string> why = certain_deadlock(world.run);
    if (!why)
      return std::nullopt;
    if (!first)
      first = std::move(why);
  }
  return first;
}

}  // namespace lockstep::checkers
