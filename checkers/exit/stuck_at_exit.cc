#include "checkers/exit/stuck_at_exit.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string_view>

#include "harness/history/hosts.h"
#include "harness/model/activity.h"
#include "harness/model/begun.h"
#include "harness/model/call_site.h"
#include "harness/model/coverage.h"
#include "harness/model/group_view.h"
#include "harness/model/stack_patterns.h"

namespace lockstep::checkers {
namespace {

// Two looks at least this far apart found it on its way out.
constexpr std::uint64_t kStaysNs = 4'000'000'000;
constexpr std::uint64_t kOneLookNs = 3'000'000'000;

/// What keeps a process: in words, where, and whose evidence that is.
struct Keeper {
  std::string what{};
  std::string over{"its program"};  ///< What of it has come to its end.
  std::string help{};
  const StackSample* stack{};  ///< Of the thread that shows the line; null where there is none.
  std::vector<Evidence> evidence{};
};

/// The Python frame that everything else was called from: "<module>" while a program runs.
const Frame* outermost_python(const StackSample& stack) {
  const auto last = std::find_if(stack.frames.rbegin(), stack.frames.rend(),
                                 [](const Frame& frame) { return frame.is_python(); });
  return last == stack.frames.rend() ? nullptr : &*last;
}

/// The program of this process runs at the level of a module, as its calls from the main thread
/// show. (Of one that embeds Python, the outermost frame may be any function.)
bool runs_as_a_module(const Run& run, const StackSample& stack) {
  const auto process =
      std::find_if(run.processes.begin(), run.processes.end(),
                   [&](const Process& p) { return p.pid == stack.pid && p.rank == stack.rank; });
  return process != run.processes.end() &&
         std::any_of(process->collectives.begin(), process->collectives.end(),
                     [&](const Collective& call) {
                       if (static_cast<std::int32_t>(call.thread) != stack.pid ||
                           call.site >= process->sites.size())
                         return false;
                       const std::vector<Frame>& frames = process->sites[call.site].frames;
                       return !frames.empty() && is(frames.back(), Sign::kModule);
                     });
}

bool runs_an_exit_handler(const Run& run, const StackSample& main) {
  const Frame* outermost = outermost_python(main);
  return outermost != nullptr && !is(*outermost, Sign::kModule) &&
         (any(main.frames, Sign::kFinalizes) || runs_as_a_module(run, main));
}

std::string at_line(const StackSample& stack) {
  return at_site(site_of(stack.rank.value_or(Rank{}), stack.frames, ""));
}

/// Threads with Python frames that the end of the interpreter may wait for, in the same look.
std::vector<const StackSample*> other_threads(const Run& run, const StackSample& main) {
  std::vector<const StackSample*> threads;
  for (const StackSample& stack : run.stacks) {
    const bool now =
        stack.at_ns + kOneLookNs >= main.at_ns && stack.at_ns <= main.at_ns + kOneLookNs;
    if (stack.pid != main.pid || stack.tid == stack.pid || !now ||
        outermost_python(stack) == nullptr || is_known_helper(stack))
      continue;
    const auto same = std::find_if(threads.begin(), threads.end(),
                                   [&](const StackSample* t) { return t->tid == stack.tid; });
    if (same == threads.end())
      threads.push_back(&stack);
    else
      *same = &stack;
  }
  return threads;
}

/// In a task that a pool of concurrent.futures was given. (One that has none stands in _worker, and
/// is told to end.)
bool runs_a_task(const StackSample& stack) {
  const auto innermost = std::find_if(stack.frames.begin(), stack.frames.end(),
                                      [](const Frame& frame) { return frame.is_python(); });
  return any(stack.frames, Sign::kThreadPoolWorker) && !is(*innermost, Sign::kThreadPoolWorker);
}

/// asyncio has a thread that waits for its default executor, when the loop has nothing else to do.
bool closes_its_executor(const Run& run, const StackSample& main) {
  const std::vector<const StackSample*> threads = other_threads(run, main);
  return any(main.frames, Sign::kEventLoop) &&
         std::any_of(threads.begin(), threads.end(), [](const StackSample* thread) {
           return any(thread->frames, Sign::kExecutorShutdown);
         });
}

/// `keeper` speaks of one thread; `only`: which ones come into question.
Keeper kept_by_a_thread(const Run& run, const StackSample& main, Keeper keeper,
                        bool (*only)(const StackSample&)) {
  std::vector<const StackSample*> threads = other_threads(run, main);
  std::erase_if(threads, [&](const StackSample* thread) { return !only(*thread); });
  if (threads.size() == 1)
    keeper.stack = threads.front();
  else if (threads.size() > 1)
    keeper.what += fmt::format(" (one of {})", threads.size());
  for (const StackSample* thread : threads) {
    const auto began = thread_begun_at(run, thread->pid, thread->started_ns);
    const auto site = site_of(thread->rank.value_or(Rank{}), thread->frames, "");
    Evidence& line = keeper.evidence.emplace_back(
        evidence_of(EvidenceKind::kProcess, as_set(thread->rank), "thread {} is{}", thread->tid,
                    site ? "" : " in no line of the program's")
            .at(site));
    if (began)
      line.text += ", and was started" + at_site(began);
  }
  return keeper;
}

Keeper kept_by_a_task(const Run& run, const StackSample& main, std::string over,
                      std::string_view pool) {
  return kept_by_a_thread(
      run, main,
      {.what = fmt::format("waits for a task of {}", pool),
       .over = std::move(over),
       .help = "tell the task to end before that, or give what it waits for a limit: a pool waits "
               "for what its threads are doing; destroy_process_group() changes nothing here"},
      runs_a_task);
}

/// At the end of the interpreter, which waits for pools first.
Keeper kept_by_threads(const Run& run, const StackSample& main) {
  if (any(main.frames, Sign::kThreadPoolAtExit))
    return kept_by_a_task(run, main, "its program", "concurrent.futures");
  if (any(main.frames, Sign::kProcessPoolAtExit))
    return {.what = "waits for a task that a process of concurrent.futures runs",
            .help = "give the task a limit, or end the processes of the pool"};
  return kept_by_a_thread(run, main,
                          {.what = "waits for a thread that is not a daemon",
                           .help = "tell the thread to stop and join it, or make it a daemon; "
                                   "destroy_process_group() changes nothing here"},
                          [](const StackSample&) { return true; });
}

/// The children of the process, if it waits for one.
void add_children(Keeper& keeper, const StateSample* state) {
  if (state == nullptr || !state->waits_for_child)
    return;
  for (const ChildState& child : state->children) {
    if (*state->waits_for_child == child.pid)
      keeper.what += fmt::format(", which waits for child {} ({})",
                                 history::words_of_pid(child.pid), child.name);
    if (*state->waits_for_child <= 0 || *state->waits_for_child == child.pid)
      keeper.evidence.push_back(
          evidence_of(EvidenceKind::kProcess, as_set(state->rank), "{}", in_words(child)));
  }
}

/// Nothing if this thread is not on its way out.
std::optional<Keeper> keeper_of(const Run& run, const StackSample& main) {
  Keeper keeper;
  if (any(main.frames, Sign::kWaitsForThreadsAtExit))
    return kept_by_threads(run, main);
  if (closes_its_executor(run, main))
    return kept_by_a_task(run, main, "its event loop", "asyncio's default executor");
  if (any(main.frames, Sign::kQueueAtExit))
    keeper = {.what = "waits until somebody takes what it has put into a multiprocessing.Queue",
              .help = "take everything out of the queue, or cancel_join_thread()"};
  else if (any(main.frames, Sign::kMultiprocessingAtExit))
    keeper.what = any(main.frames, Sign::kMultiprocessingJoin)
                      ? "waits for a child that multiprocessing started"
                      : "is in the exit handlers of multiprocessing";
  else if (runs_an_exit_handler(run, main))
    keeper = {.what = fmt::format("is in an exit handler ({})", outermost_python(main)->function),
              .help = "give what it waits for a limit",
              .stack = &main};
  else if (any(main.frames, Sign::kC10d) && any(main.frames, Sign::kRunsExitHandlers))
    keeper = {.what = "is in the destructor of a process group, with a collective unfinished",
              .help = "wait for every async operation before the program ends"};
  else if (any(main.frames, Sign::kRunsExitHandlers) || any(main.frames, Sign::kFinalizes))
    keeper.what = "is in a destructor or exit handler of C or C++";
  else
    return std::nullopt;
  return keeper;
}

/// The processes whose end the job waits for: ranks, and the command that started them.
struct Leaving {
  std::int32_t pid{};
  std::optional<Rank> rank{};
  std::uint64_t since_ns{};
  const StackSample* main{};  ///< The last.
  Keeper keeper{};
  [[nodiscard]] std::string who() const {
    return rank ? fmt::format("rank {}", rank->value)
                : fmt::format("{}, the command,", history::words_of_pid(pid));
  }
};

std::vector<Leaving> leaving(const Run& run, std::uint64_t cutoff_ns) {
  std::vector<Leaving> all;
  for (const ProcessStart& start : run.starts) {
    const bool ended = std::any_of(run.ends.begin(), run.ends.end(), [&](const ProcessEnd& end) {
      return end.pid == start.pid && end.at_ns >= start.at_ns && end.at_ns <= cutoff_ns;
    });
    const auto known = std::find_if(all.begin(), all.end(),
                                    [&](const Leaving& one) { return one.pid == start.pid; });
    if (known != all.end() && !known->rank)
      known->rank = start.rank;  // The command is one of them.
    const bool of_the_job =
        start.role == Role::kRank || start.role == Role::kOther || start.role == Role::kBeside;
    if (ended || known != all.end() || !of_the_job)
      continue;
    Leaving one{.pid = start.pid, .rank = start.rank};
    for (const StackSample& stack : run.stacks) {
      if (stack.pid != start.pid || stack.tid != stack.pid || stack.at_ns > cutoff_ns)
        continue;
      std::optional<Keeper> keeper = keeper_of(run, stack);
      if (!keeper)
        one = {.pid = start.pid, .rank = start.rank};
      else if (one.main == nullptr)
        one.since_ns = stack.at_ns;
      if (!keeper)
        continue;
      one.main = &stack;
      one.keeper = std::move(*keeper);
    }
    if (one.main == nullptr)
      continue;
    add_children(one.keeper, last_state(run, one.pid, cutoff_ns));
    all.push_back(std::move(one));
  }
  return all;
}

Finding will_not_exit(const Run& run, const Leaving& one) {
  Finding finding;
  finding.code = Code::kWillNotExit;
  finding.at_ns = one.since_ns;
  finding.confidence = Confidence::kLikely;
  if (one.rank)
    finding.culprits = {*one.rank};
  finding.affected = ranks_of(run).minus(finding.culprits);
  const StackSample* shown = one.keeper.stack;
  finding.headline =
      fmt::format("{} will not exit: {} is over, and it {}{}", one.who(), one.keeper.over,
                  one.keeper.what, shown == nullptr ? "" : at_line(*shown));
  if (shown != nullptr) {
    finding.add(site_of(one.rank.value_or(Rank{}), shown->frames, "culprit"));
    finding.add(thread_begun_at(run, shown->pid, shown->started_ns));
  }
  finding.help = one.keeper.help;
  finding.evidence = one.keeper.evidence;
  finding.tell(EvidenceKind::kWait, finding.culprits,
               "{} was on its way out for at least {:.0f} s when the run was ended",
               history::words_of_pid(one.pid),
               static_cast<double>(one.main->at_ns - one.since_ns) / 1e9);
  return finding;
}

/// A rank host that was asked to leave and did not, while another one did.
std::vector<Finding> hosts_that_stay(const Run& run, std::uint64_t cutoff_ns) {
  std::vector<Finding> stay;
  RankSet gone;
  for (const ProcessEnd& end : run.ends) {
    if (end.rank && end.at_ns <= cutoff_ns)
      gone.insert(*end.rank);
  }
  for (const Request& request : run.requests) {
    if (request.message != "bye" || !request.rank || gone.empty() || gone.contains(*request.rank))
      continue;
    const Activity held = held_up(run, pid_of(run, *request.rank), nullptr, cutoff_ns);
    if (held.doing == Doing::kUnknown)
      continue;
    Finding finding;
    finding.code = Code::kWillNotExit;
    finding.at_ns = request.at_ns;
    finding.confidence = Confidence::kLikely;
    finding.culprits = {*request.rank};
    finding.affected = ranks_of(run).minus(finding.culprits);
    finding.headline = fmt::format("rank {} was asked to leave and did not: it {}",
                                   request.rank->value, in_words(held));
    stay.push_back(std::move(finding));
  }
  return stay;
}

}  // namespace

std::vector<std::string> on_their_way_out(const Run& run) {
  std::vector<std::string> lines;
  for (const Leaving& one : leaving(run, kNeverNs)) {
    const StackSample* shown = one.keeper.stack;
    lines.push_back(fmt::format("{} is over and has not exited: it {}{}", one.who(),
                                one.keeper.what, shown == nullptr ? "" : at_line(*shown)));
  }
  return lines;
}

std::vector<WayOut> ways_out(const Run& run) {
  std::vector<WayOut> ways;
  for (const Leaving& one : leaving(run, kNeverNs)) {
    const StackSample* const shown = one.keeper.stack;
    ways.push_back({.pid = one.pid,
                    .what = one.keeper.what,
                    .over = one.keeper.over,
                    .site = shown == nullptr
                                ? std::nullopt
                                : site_of(one.rank.value_or(Rank{}), shown->frames, "culprit"),
                    .evidence = one.keeper.evidence,
                    .help = one.keeper.help});
  }
  return ways;
}

Verdict StuckAtExit::check(const Job& job) const {
  const Run& run = job.run();
  Verdict verdict{.name = std::string(name())};
  const std::uint64_t cutoff_ns = first_act_ns(run);
  if (cutoff_ns == kNeverNs)
    return verdict.skip("every process ended by itself");
  verdict.findings = hosts_that_stay(run, cutoff_ns);
  const std::vector<Leaving> all = leaving(run, cutoff_ns);
  verdict.examined["leaving"] = all.size();
  for (const Leaving& one : all) {
    if (one.main->at_ns >= one.since_ns + kStaysNs)
      verdict.findings.push_back(will_not_exit(run, one));
  }
  if (!verdict.findings.empty())
    verdict.outcome = Outcome::kFail;
  else if (!journal_is_whole(run))
    verdict.because(why_open(run));
  else if (!all.empty())
    verdict.reason = fmt::format(
        "{} was on its way out when the run was ended, and may have got "
        "there",
        all.front().who());
  else
    verdict.outcome = Outcome::kPass;
  return verdict;
}

}  // namespace lockstep::checkers
