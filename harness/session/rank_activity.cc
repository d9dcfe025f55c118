#include "harness/session/rank_activity.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "checkers/hang/rendezvous.h"
#include "checkers/worlds.h"
#include "harness/model/call_site.h"
#include "harness/model/failure.h"
#include "harness/model/group_view.h"
#include "harness/model/process_state.h"
#include "harness/model/ranks_by_text.h"
#include "harness/model/stack_patterns.h"
#include "harness/model/worlds.h"

namespace lockstep::session {
namespace {

std::string whole_seconds(std::uint64_t since_ns, std::uint64_t now_ns) {
  return fmt::format("{} s", now_ns > since_ns ? (now_ns - since_ns) / 1'000'000'000 : 0);
}

/// ", now at train.py:40"; empty if the main thread has not been looked at since the last call.
std::string now_at(const Run& run, const Process& process, std::uint64_t now_ns) {
  const ProcessState state = state_of(run, process, now_ns);
  const auto site = state.main_stack == nullptr ? std::nullopt
                                                : site_of(state.rank, state.main_stack->frames, "");
  return site ? fmt::format(", now{}", at_site(site)) : "";
}

/// "raised: ValueError: no label at train.py:12"; "ended" if nothing went wrong.
std::string end_of(const std::vector<Failure>& failures, Rank rank) {
  const auto failure = std::find_if(failures.begin(), failures.end(),
                                    [&](const Failure& each) { return each.rank == rank; });
  return failure == failures.end()
             ? "ended"
             : fmt::format("{}{}", in_words(*failure), at_site(failure->raised));
}

std::string activity(const Run& run, const std::vector<Failure>& failures, Rank rank, bool lives,
                     std::uint64_t now_ns) {
  const Process* process = current_process(run, rank);
  const std::int32_t pid = pid_of(run, rank);  // A job may follow another one.
  if (!lives && has_ended(run, pid != 0 || process == nullptr ? pid : process->pid))
    return end_of(failures, rank);
  if (const auto before = checkers::before_its_group(run, rank, kNeverNs))
    return before->joining_since_ns
               ? fmt::format("in init_process_group{} for {}", at_site(before->site),
                             whole_seconds(*before->joining_since_ns, now_ns))
               : fmt::format("in no group yet, now{}", at_site(before->site));
  if (process == nullptr || has_ended(run, process->pid))
    return pid == 0 ? "not seen yet" : "in no group yet";
  if (process->collectives.empty())
    return "no collective yet";
  const Collective& last = process->collectives.back();
  const bool known =
      last.group < process->groups.size() && !process->groups[last.group].name.empty();
  const std::string call = fmt::format("{} {}#{}{}", history::name_of(last.op),
                                       known ? process->groups[last.group].name : "world", last.seq,
                                       at_site(site_of(*process, last, "")));
  // (Who sends or receives may still wait for it: of that there is no sign.)
  const std::string_view where = in_or_after(last);
  const std::uint64_t since_ns =
      where == "in" ? last.issued_ns : std::max(*last.returned_ns, last.completed_ns.value_or(0));
  return fmt::format("{} {} for {}{}", where, call, whole_seconds(since_ns, now_ns),
                     where == "in" ? "" : now_at(run, *process, now_ns));
}

std::vector<std::string> activity_of(const Run& live, const RankSet& living, std::uint64_t now_ns,
                                     const RankSet& elsewhere) {
  const std::vector<Failure> failures = failures_of(live, group_views(live, now_ns));
  RanksByText groups;
  for (const Rank rank : ranks_of(live).minus(elsewhere))
    add_rank(groups, activity(live, failures, rank, living.contains(rank), now_ns), rank);
  std::stable_sort(groups.begin(), groups.end(),
                   [](const auto& a, const auto& b) { return a.second.size() > b.second.size(); });
  std::vector<std::string> lines;
  for (const auto& [text, ranks] : groups)
    lines.push_back(fmt::format("{}: {}", words(ranks), text));
  return lines;
}

}  // namespace

bool one_imports(const Run& live) {
  std::map<std::int32_t, const StackSample*> last;  // Of main threads, by pid.
  for (const StackSample& stack : live.stacks) {
    if (stack.rank && stack.tid == stack.pid && !has_ended(live, stack.pid))
      last[stack.pid] = &stack;
  }
  return std::any_of(last.begin(), last.end(),
                     [](const auto& each) { return any(each.second->frames, Sign::kImport); });
}

std::vector<std::string> rank_activity(const Run& live, const RankSet& living, std::uint64_t now_ns,
                                       const RankSet& elsewhere) {
  const std::vector<World> worlds = worlds_at_one_time(live);
  if (worlds.empty())
    return activity_of(live, living, now_ns, elsewhere);
  std::vector<std::string> lines;
  for (std::size_t i = 0; i < worlds.size(); ++i) {
    if (worlds[i].until_ns != kNeverNs)
      continue;  // It is over.
    for (const std::string& line : activity_of(worlds[i].run, living, now_ns, elsewhere))
      lines.push_back(fmt::format("{}: {}", checkers::name_of(worlds, i), line));
  }
  return lines;
}

}  // namespace lockstep::session
