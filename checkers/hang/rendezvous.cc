#include "checkers/hang/rendezvous.h"

#include <fmt/format.h>

#include <algorithm>

#include "checkers/hang/given_twice.h"
#include "checkers/hang/stall.h"
#include "checkers/hang/strangers.h"
#include "checkers/hang/wait_for_graph.h"
#include "harness/history/rank_places.h"
#include "harness/model/call_site.h"
#include "harness/model/coverage.h"
#include "harness/model/error_patterns.h"
#include "harness/model/group_view.h"
#include "harness/model/stack_patterns.h"

namespace lockstep::checkers {
namespace {

/// Of a rank's main thread, the last before `cutoff_ns`; null if it was not seen. A process that
/// has ended (an earlier job or attempt) is no longer the rank.
const StackSample* main_stack_of(const Run& run, Rank rank, std::uint64_t cutoff_ns,
                                 std::uint64_t seen_until_ns) {
  const StackSample* last = nullptr;
  for (const StackSample& stack : run.stacks) {
    if (stack.rank == rank && stack.tid == stack.pid && stack.at_ns <= seen_until_ns &&
        (last == nullptr || stack.at_ns >= last->at_ns) && !has_ended(run, stack.pid, cutoff_ns))
      last = &stack;
  }
  return last;
}

const StackSample* main_stack_of(const Run& run, Rank rank, std::uint64_t cutoff_ns) {
  return main_stack_of(run, rank, cutoff_ns, cutoff_ns);
}

bool is_joining(const StackSample* stack) {
  return stack != nullptr && are_of_joining(stack->frames);
}

/// What the rank raised in there, for want of others; null if it did not.
const Raised* raised_while_joining(const Run& run, Rank rank) {
  const auto raised = std::find_if(run.raised.begin(), run.raised.end(), [&](const Raised& each) {
    return each.rank == rank && are_of_joining(each.raised_at.frames) &&
           says(each.text, Says::kPeerGone);
  });
  return raised == run.raised.end() ? nullptr : &*raised;
}

/// Its launcher was killed by then: who waits for whom from then on may be due to that.
bool was_orphaned(const Run& run, std::uint64_t cutoff_ns) {
  const LauncherEnd* const killed = launcher_killed(run);
  return killed != nullptr && killed->at_ns <= cutoff_ns;
}

/// For how long it has been seen to wait in init_process_group; 0: it is not there. (Who was asked
/// to end by a key of the terminal, and waits on, waited before.)
std::uint64_t joining_for_ns(const Run& run, Rank rank, std::uint64_t cutoff_ns) {
  const StackSample* last =
      main_stack_of(run, rank, cutoff_ns, was(run, "interrupted") ? kNeverNs : cutoff_ns);
  if (!is_joining(last))
    last = main_stack_of(run, rank, cutoff_ns);
  return !is_joining(last)
             ? 0
             : lasted_ns(run, *last, [](const StackSample& stack) { return is_joining(&stack); });
}

/// Where nobody is missing this takes milliseconds.
bool has_long_been_joining(const Run& run, Rank rank) {
  return is_joining(main_stack_of(run, rank, kNeverNs)) &&
         joining_for_ns(run, rank, kNeverNs) >= kLongJoiningNs;
}

/// The shortest wait of these.
std::uint64_t all_joining_for_ns(const Run& run, const RankSet& waiting, std::uint64_t cutoff_ns) {
  std::uint64_t shortest = kNeverNs;
  for (const Rank rank : waiting)
    shortest = std::min(shortest, joining_for_ns(run, rank, cutoff_ns));
  return waiting.empty() ? 0 : shortest;
}

/// A limit ended the run, or somebody who may have been wrong lost patience with it.
bool was_given_up(const Run& run, const RankSet& waiting, std::uint64_t cutoff_ns) {
  constexpr auto kPatienceNs = static_cast<std::uint64_t>(  // As for any other wait.
      std::chrono::nanoseconds(kStallIsNoticedAfter).count());
  const bool orphaned = was_orphaned(run, cutoff_ns);
  return (was(run, "deadline") && !orphaned) ||
         ((was(run, "interrupted") || orphaned) &&
          all_joining_for_ns(run, waiting, cutoff_ns) >= kPatienceNs);
}

/// A rank host was asked to make the group, has not answered, and is held by nothing of its own.
/// (It polls a file for the others, so that its stack is not looked at.)
bool host_is_joining(const Run& run, Rank rank, std::uint64_t cutoff_ns) {
  return std::any_of(run.requests.begin(), run.requests.end(),
                     [&](const Request& request) {
                       return request.rank == rank && request.role == Role::kRank &&
                              request.message == "init" && !request.answered_ns;
                     }) &&
         held_up(run, pid_of(run, rank), main_stack_of(run, rank, cutoff_ns), cutoff_ns).doing ==
             Doing::kUnknown;
}

struct Ranks {
  RankSet waiting{}, absent{};
};

/// None of those that live has a group yet, or both sets are empty.
Ranks ranks_before_the_first_group(const Run& run, std::uint64_t cutoff_ns) {
  Ranks ranks;
  for (const Rank rank : ranks_of(run)) {
    const Process* process = current_process(run, rank);
    if (process != nullptr && !process->groups.empty() && !has_ended(run, process->pid, cutoff_ns))
      return {};
    const bool waits = run.plan.scenario.empty() ? is_joining(main_stack_of(run, rank, cutoff_ns))
                                                 : host_is_joining(run, rank, cutoff_ns);
    (waits ? ranks.waiting : ranks.absent).insert(rank);
  }
  return ranks;
}

/// It ended well, was in no group before, and nobody is there who could start it again.
bool left_before_joining(const Run& run, Rank rank, std::uint64_t cutoff_ns) {
  const Process* const process = current_process(run, rank);
  const std::int32_t pid = pid_of(run, rank);
  return (process == nullptr || process->groups.empty()) &&
         !history::wrapper_lives(run, rank, cutoff_ns) &&
         std::any_of(run.ends.begin(), run.ends.end(), [&](const ProcessEnd& end) {
           return end.pid == pid && end.rank == rank && end.role == Role::kRank &&
                  end.at_ns < cutoff_ns && end.exit_status == 0;
         });
}

bool have_left_before_joining(const Run& run, const RankSet& absent, std::uint64_t cutoff_ns) {
  return !absent.empty() && std::all_of(absent.begin(), absent.end(), [&](Rank rank) {
    return left_before_joining(run, rank, cutoff_ns);
  });
}

/// What keeps each absent rank: "rank 1 sleeps". Empty if that is not known of one of them.
std::vector<Evidence> what_holds(const Run& run, const RankSet& absent, std::uint64_t cutoff_ns) {
  std::vector<Evidence> holds;
  for (const Rank rank : absent) {
    if (left_before_joining(run, rank, cutoff_ns)) {
      holds.push_back(evidence_of(EvidenceKind::kEnd, {rank}, "rank {} exited with status 0 before",
                                  rank.value));
      continue;
    }
    const std::int32_t pid = pid_of(run, rank);
    const StackSample* stack = main_stack_of(run, rank, cutoff_ns);
    const Activity held = held_up(run, pid, stack, cutoff_ns);
    if (has_ended(run, pid, cutoff_ns) || held.doing == Doing::kUnknown || !held.held_by.empty())
      return {};
    holds.push_back(
        evidence_of(EvidenceKind::kWait, {rank}, "rank {} {}", rank.value, in_words(held))
            .at(stack == nullptr ? std::nullopt : site_of(rank, stack->frames, "culprit")));
  }
  return holds;
}

/// Those whose last process was in a group, and has ended.
RankSet had_their_group(const Run& run, const RankSet& absent) {
  RankSet had;
  for (const Rank rank : absent) {
    const Process* const process = current_process(run, rank);
    if (process != nullptr && !process->groups.empty() && process->pid == pid_of(run, rank))
      had.insert(rank);
  }
  return had;
}

/// Of the world that the others were told. (Its process may be on another host.)
RankSet never_started(const Run& run, const RankSet& absent) {
  RankSet none;
  for (const Rank rank : absent) {
    if (pid_of(run, rank) == 0 && current_process(run, rank) == nullptr)
      none.insert(rank);
  }
  return none;
}

Finding never_joined(const Run& run, const Ranks& ranks, std::uint64_t cutoff_ns) {
  Finding finding;
  finding.code = Code::kNeverJoined;
  finding.confidence = Confidence::kLikely;
  finding.at_ns = cutoff_ns;
  finding.affected = ranks.waiting;
  const char* wait = ranks.waiting.size() == 1 ? "waits" : "wait";
  const RankSet never = ranks.absent.minus(had_their_group(run, ranks.absent));
  if (ranks.absent.empty()) {
    finding.headline =
        fmt::format("{} {} in init_process_group, and all that were started are there",
                    words(ranks.waiting), wait);
    finding.cause = run.plan.world_size > 0
                        ? "they do not meet: MASTER_ADDR, MASTER_PORT or the store of one of them "
                          "is another, two of them ask for one rank, or the program asks for more "
                          "ranks than WORLD_SIZE"
                        : "WORLD_SIZE is larger than the number of ranks that were started";
  } else if (never.empty()) {
    finding.headline = fmt::format("{} {} in init_process_group, and {} {} ended after {} group",
                                   words(ranks.waiting), wait, words(ranks.absent),
                                   ranks.absent.size() == 1 ? "has" : "have",
                                   ranks.absent.size() == 1 ? "its" : "their");
    finding.affected = ranks_of(run);
  } else {
    finding.headline = fmt::format("{} never came to init_process_group; {} {} in it", words(never),
                                   words(ranks.waiting), wait);
    finding.evidence = what_holds(run, never, cutoff_ns);
    if (!finding.evidence.empty())  // Each is held by something of its own: a fact.
      finding.culprits = never;
    else
      finding.affected = ranks_of(run);
    if (const RankSet none = never_started(run, never); !none.empty())
      finding.tell(EvidenceKind::kProcess, none,
                   "no process of the job was told to be {}, and WORLD_SIZE is {}", words(none),
                   run.plan.world_size);
  }
  if (const std::uint64_t ns = all_joining_for_ns(run, ranks.waiting, cutoff_ns);
      ns >= kLongJoiningNs)
    finding.tell(EvidenceKind::kWait, ranks.waiting, "{} waited there for {} s",
                 words(ranks.waiting), ns / 1'000'000'000);
  tell_strangers(run, ranks.waiting, finding);
  for (const RankSet& set : {ranks.absent, ranks.waiting}) {
    if (set.empty())
      continue;
    const Rank first = *set.begin();
    const StackSample* stack = main_stack_of(run, first, cutoff_ns);
    const char* role = finding.culprits.contains(first) ? "culprit" : "peer";
    finding.add(stack == nullptr ? std::nullopt : site_of(first, stack->frames, role));
  }
  return finding;
}

}  // namespace

bool are_of_joining(const std::vector<Frame>& frames) {
  return any(frames, Sign::kInitProcessGroup);
}

RankSet waiting_to_join_again(const Run& run, const ProcessEnd& gone) {
  RankSet waiting;
  const std::uint64_t cutoff_ns = first_act_ns(run);
  for (const Rank rank : ranks_of(run)) {
    const Process* const process = current_process(run, rank);
    if (process == nullptr || process->groups.empty())
      return {};  // It may be the one that has not come.
    const auto end = std::find_if(run.ends.begin(), run.ends.end(), [&](const ProcessEnd& each) {
      return each.role == Role::kRank && each.rank == rank;
    });
    if (rank == gone.rank || (end != run.ends.end() && end->exit_status == 0 && !end->our_signal))
      continue;
    const Raised* const raised = raised_while_joining(run, rank);
    const StackSample* const last = main_stack_of(run, rank, cutoff_ns);
    const bool waits = is_joining(last) && last->at_ns > gone.at_ns &&
                       lasted_ns(run, *last, [](const StackSample& stack) {
                         return is_joining(&stack);
                       }) >= kLongJoiningNs;
    if (!(raised != nullptr && raised->at_ns > gone.at_ns) && !waits)
      return {};
    waiting.insert(rank);
  }
  return waiting;
}

std::optional<SiteRef> where_it_joins(const Run& run, Rank rank) {
  if (const Raised* const raised = raised_while_joining(run, rank))
    return site_of(rank, raised->raised_at.frames, "peer");
  const StackSample* const stack = main_stack_of(run, rank, first_act_ns(run));
  return stack == nullptr ? std::nullopt : site_of(rank, stack->frames, "peer");
}

std::optional<BeforeItsGroup> before_its_group(const Run& run, Rank rank, std::uint64_t cutoff_ns) {
  const StackSample* const stack = main_stack_of(run, rank, cutoff_ns);
  const Process* const process = current_process(run, rank);
  const bool has_group = process != nullptr && !process->groups.empty();
  if (stack == nullptr || (has_group && !has_ended(run, process->pid, cutoff_ns)))
    return std::nullopt;
  BeforeItsGroup before{.site = site_of(rank, stack->frames, "")};
  if (is_joining(stack))
    before.joining_since_ns = stack->at_ns - joining_for_ns(run, rank, cutoff_ns);
  return before;
}

std::optional<std::string> cannot_all_join(const Run& run, bool others_wait) {
  const Ranks ranks = ranks_before_the_first_group(run, kNeverNs);
  RankSet failed, living;
  for (const Rank rank : ranks.absent) {
    const std::int32_t pid = pid_of(run, rank);
    const auto end = std::find_if(run.ends.begin(), run.ends.end(),
                                  [&](const ProcessEnd& each) { return each.pid == pid; });
    if (end == run.ends.end())
      living.insert(rank);
    else if (end->failed() && !end->our_signal)
      failed.insert(rank);
  }
  const RankSet gone = WaitForGraph(run).gone();
  const bool all_gone = std::all_of(failed.begin(), failed.end(), [&](Rank rank) {
    return gone.contains(rank) || (others_wait && !history::wrapper_lives(run, rank, kNeverNs));
  });
  const bool all_wait = std::all_of(ranks.waiting.begin(), ranks.waiting.end(),
                                    [&](Rank rank) { return has_long_been_joining(run, rank); });
  if (failed.empty() || ranks.waiting.empty() || !living.empty() || !all_gone || !all_wait)
    return std::nullopt;
  return fmt::format("{} failed before init_process_group; {} {} in it for {}", words(failed),
                     words(ranks.waiting), ranks.waiting.size() == 1 ? "waits" : "wait",
                     failed.size() == 1 ? "it" : "them");
}

Verdict Rendezvous::check(const Job& job) const {
  const Run& run = job.run();
  Verdict verdict{.name = std::string(name())};
  const std::uint64_t cutoff_ns = first_act_ns(run);
  const Ranks ranks = ranks_before_the_first_group(run, cutoff_ns);
  verdict.examined["waiting"] = ranks.waiting.size();
  if (std::optional<Finding> met = met_another_job(run); met && journal_is_whole(run)) {
    verdict.fail(std::move(*met));
  } else if (auto twice = rank_given_twice(run, cutoff_ns);
             twice && run.plan.scenario.empty() && journal_is_whole(run)) {
    verdict.fail(std::move(*twice));
  } else if (ranks.waiting.empty()) {
    verdict.skip("no rank was seen to wait for its first process group");
  } else if (!journal_is_whole(run)) {
    verdict.because(why_open(run));
  } else if (!was_given_up(run, ranks.waiting, cutoff_ns) &&
             !have_left_before_joining(run, ranks.absent, cutoff_ns)) {
    if (was_orphaned(run, cutoff_ns))  // That is told, and is why they never met.
      verdict.outcome = Outcome::kSkipped;
    verdict.reason = fmt::format(
        "{} waited in init_process_group when the run ended, and {}", words(ranks.waiting),
        ranks.absent.empty() ? "nobody was missing" : words(ranks.absent) + " had not come to it");
  } else {
    verdict.fail(never_joined(run, ranks, cutoff_ns));
  }
  return verdict;
}

}  // namespace lockstep::checkers
