#include "harness/model/process_state.h"

#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <iterator>
#include <string_view>

#include "harness/model/call_site.h"
#include "harness/model/stack_patterns.h"

namespace lockstep {
namespace {

constexpr std::uint64_t kStoreMayTakeNs = 3'000'000'000;  // To answer: milliseconds as a rule.

/// The two samples that show whether the process moves: the last one, and the last one long enough
/// before it.
struct SamplePair {
  const StateSample* first{};
  const StateSample* second{};
};

SamplePair last_pair(const Run& run, const Process& process, std::uint64_t cutoff_ns) {
  SamplePair pair;
  const auto ours = [&](const StateSample& s) {
    return s.pid == process.pid && s.rank == process.rank && s.at_ns <= cutoff_ns &&
           s.at_ns >= process.opened_ns;
  };
  for (const StateSample& sample : run.states) {
    if (ours(sample) && (pair.second == nullptr || sample.at_ns >= pair.second->at_ns))
      pair.second = &sample;
  }
  for (const StateSample& sample : run.states) {
    if (pair.second != nullptr && ours(sample) && sample.at_ns + kStillNs <= pair.second->at_ns &&
        (pair.first == nullptr || sample.at_ns > pair.first->at_ns))
      pair.first = &sample;
  }
  return pair;
}

/// Asleep throughout: it never ran between the two samples.
bool slept(const SamplePair& pair, std::int32_t tid) {
  const ThreadState* a = thread_in(*pair.first, tid);
  const ThreadState* b = thread_in(*pair.second, tid);
  return a != nullptr && b != nullptr && a->state == 'S' && b->state == 'S' &&
         a->context_switches == b->context_switches && a->cpu_ns == b->cpu_ns;
}

/// Another thread of its process has to wake it, and nothing else does.
bool waits_for_own(const ThreadState& thread) { return thread.for_own_threads && thread.for_ever; }

/// None of its threads ran for more than a fiftieth of the time. (Gloo's look around now and then.)
bool was_idle(const SamplePair& pair) {
  const std::uint64_t interval = pair.second->at_ns - pair.first->at_ns;
  return std::all_of(pair.second->threads.begin(), pair.second->threads.end(),
                     [&](const ThreadState& thread) {
                       const ThreadState* const before = thread_in(*pair.first, thread.tid);
                       return before != nullptr && before->state == 'S' && thread.state == 'S' &&
                              thread.cpu_ns <= before->cpu_ns + interval / 50;
                     });
}

/// The last instant, up to the cutoff, at which the history says that the process did something.
std::uint64_t last_event_ns(const Process& process, std::uint64_t cutoff_ns) {
  std::uint64_t last = process.opened_ns;
  const auto see = [&](std::uint64_t ns) {
    if (ns <= cutoff_ns)
      last = std::max(last, ns);
  };
  for (const Collective& call : process.collectives) {
    see(call.issued_ns);
    see(call.returned_ns.value_or(0));
    see(call.completed_ns.value_or(0));
  }
  return last;
}

const StackSample* last_stack(const Run& run, const Process& process, std::int32_t tid,
                              std::uint64_t since_ns, std::uint64_t cutoff_ns) {
  const StackSample* last = nullptr;
  for (const StackSample& stack : run.stacks) {
    if (stack.pid == process.pid && stack.rank == process.rank && stack.tid == tid &&
        stack.at_ns >= since_ns && stack.at_ns <= cutoff_ns &&
        (last == nullptr || stack.at_ns >= last->at_ns))
      last = &stack;
  }
  return last;
}

bool runs_python(const Run& run, const Process& process) {
  for (const CallSite& site : process.sites) {
    if (std::any_of(site.frames.begin(), site.frames.end(), is_python))
      return true;
  }
  return std::any_of(run.stacks.begin(), run.stacks.end(), [&](const StackSample& stack) {
    return stack.pid == process.pid &&
           std::any_of(stack.frames.begin(), stack.frames.end(), is_python);
  });
}

/// A thread that never issued a collective: can it be the one that ends the wait?
std::string may_act(const Run& run, const Process& process, const SamplePair& pair,
                    const ThreadState& thread, bool python, std::uint64_t cutoff_ns) {
  const ThreadState* before = thread_in(*pair.first, thread.tid);
  if (before == nullptr)
    return fmt::format("thread {} has just started", thread.tid);
  const std::uint64_t interval = pair.second->at_ns - pair.first->at_ns;
  if (thread.cpu_ns > before->cpu_ns + interval / 10)
    return fmt::format("thread {} is computing", thread.tid);
  if (thread.state == 'T' || thread.state == 't')
    return fmt::format("thread {} is stopped or traced", thread.tid);
  const StackSample* stack = last_stack(run, process, thread.tid, 0, cutoff_ns);
  if (stack != nullptr && is_known_helper(*stack))
    return "";
  if (kernel_wait(thread.wchan) == KernelWait::kTimer)
    return fmt::format("thread {} sleeps for a while", thread.tid);
  if (!python)
    return "";
  if (stack == nullptr)
    return fmt::format("it is not known whether thread {} runs Python", thread.tid);
  if (std::none_of(stack->frames.begin(), stack->frames.end(), is_python))
    return "";
  if (slept(pair, thread.tid) && (waits_for_own(thread) || in_untimed_lock(*stack)))
    return "";
  return fmt::format("thread {} runs Python and may go on", thread.tid);
}

/// An issuer that waits for another thread of its process, without a limit. The main thread could
/// be called away by the handler of a signal, other than Ctrl-C.
bool waits_for_own_threads(const SamplePair& pair, std::int32_t tid) {
  constexpr auto bit = [](int signal) { return std::uint64_t{1} << (signal - 1); };
  constexpr std::uint64_t kHarmless = bit(SIGINT) | bit(32) | bit(33);  // Two are the C library's.
  const ThreadState* const now = thread_in(*pair.second, tid);
  return now != nullptr && waits_for_own(*now) &&
         (pair.second->caught_signals.value_or(~kHarmless) & ~kHarmless) == 0;
}

/// What may wake a thread that waits for another one of its process. Empty: it waits for ever, as
/// the others do, too, but for LibTorch's own that serve connections.
std::string may_wake(const Run& run, const ProcessState& state, const SamplePair& pair,
                     const std::vector<std::int32_t>& issuers, std::uint64_t cutoff_ns) {
  if (std::any_of(state.open.begin(), state.open.end(),
                  [](const Collective* call) { return !call->completion_unseen; }))
    return "the end of a collective";
  for (const ThreadState& thread : pair.second->threads) {
    if (std::find(issuers.begin(), issuers.end(), thread.tid) != issuers.end())
      continue;
    const StackSample* const stack = last_stack(run, *state.process, thread.tid, 0, cutoff_ns);
    const bool for_ever =
        stack != nullptr && !is_for_tasks(*stack) &&
        ((waits_for_own(thread) && slept(pair, thread.tid)) ||
         (kernel_wait(thread.wchan) == KernelWait::kEpoll && is_of_libtorch(*stack)));
    if (!for_ever)
      return fmt::format("thread {}", thread.tid);
  }
  return "";
}

/// Which ends the wait by its own end alone, or by that of its work.
bool waits_for_a_thread(const Run& run, const ProcessState& state, const StackSample& stack,
                        std::uint64_t cutoff_ns) {
  if (joins_a_thread(stack))
    return true;
  return awaits_autograd(stack) &&
         std::any_of(state.waits.begin(), state.waits.end(), [&](const Activity& wait) {
           const StackSample* const other =
               last_stack(run, *state.process, wait.thread, state.last_event_ns, cutoff_ns);
           return other != nullptr && works_for_backward(*other);
         });
}

/// The process had written more, when it was sampled, than what is known of it.
bool is_behind(const Process& process, const StateSample& sample) {
  return sample.head > (process.collectives.empty() ? 0 : process.collectives.back().record + 1);
}

bool moved(const ProcessState& state, const SamplePair& pair) {
  return pair.first->head != pair.second->head || state.last_event_ns > pair.first->at_ns;
}

bool idle_in_conversation(const Run& run, Rank rank, std::uint64_t cutoff_ns) {
  const Request* last = nullptr;
  for (const Request& request : run.requests) {
    if (request.role != Role::kRank || request.rank != rank || request.at_ns > cutoff_ns)
      continue;
    if (!request.answered_ns || *request.answered_ns > cutoff_ns)
      return false;
    if (last == nullptr || request.at_ns >= last->at_ns)
      last = &request;
  }
  return last != nullptr && last->message != "bye" && last->message != "fault";
}

/// A wait for a message has always a limit: that of the group, or, which does not show, one of the
/// caller's own, and it goes on by itself. It is the group's where the wait, which began after the
/// last thing that the thread did, then ends.
bool lasts_as_long_as_groups_let(const Process& process,
                                 const std::vector<const Collective*>& calls,
                                 const SamplePair& pair, std::int32_t tid) {
  constexpr std::uint64_t kClocksMayDifferNs = 50'000'000;
  const ThreadState& thread = *thread_in(*pair.second, tid);
  if (!thread.until_ns)
    return false;
  std::uint64_t last_ns = process.opened_ns;
  for (const Collective& call : process.collectives) {
    if (static_cast<std::int32_t>(call.thread) == tid)
      last_ns = std::max({last_ns, call.issued_ns, call.returned_ns.value_or(0)});
  }
  return std::all_of(calls.begin(), calls.end(), [&](const Collective* call) {
    const auto limit_ms = process.groups[call->group].timeout_ms;
    if (!limit_ms)
      return false;
    const std::uint64_t limit_ns = static_cast<std::uint64_t>(*limit_ms) * 1'000'000;
    return *thread.until_ns + kClocksMayDifferNs >= last_ns + limit_ns &&
           *thread.until_ns <= pair.first->at_ns + limit_ns + kClocksMayDifferNs;
  });
}

/// The wait for a message that was not called by its blocking name: for one of all that are open.
std::optional<Activity> wait_for_any_message(const ProcessState& state, const StackSample& stack,
                                             const SamplePair& pair, std::int32_t tid) {
  Activity wait{.doing = Doing::kInCall, .thread = tid};
  std::copy_if(state.open.begin(), state.open.end(), std::back_inserter(wait.calls),
               [&](const Collective* call) { return awaits_message(stack, call->op); });
  if (wait.calls.empty() || !lasts_as_long_as_groups_let(*state.process, wait.calls, pair, tid))
    return std::nullopt;
  return wait;
}

/// The wait of one sleeping issuer; none if it is in no wait that is known.
std::optional<Activity> wait_of(const Run& run, const ProcessState& state, const SamplePair& pair,
                                std::int32_t tid, std::uint64_t cutoff_ns) {
  const Process& process = *state.process;
  const Collective* last = nullptr;
  for (const Collective& call : process.collectives) {
    if (static_cast<std::int32_t>(call.thread) == tid && call.issued_ns <= cutoff_ns)
      last = &call;
  }
  const StackSample* stack = last_stack(run, process, tid, state.last_event_ns, cutoff_ns);
  const bool open =
      last != nullptr && std::find(state.open.begin(), state.open.end(), last) != state.open.end();
  const bool inside = open && (!last->returned_ns || *last->returned_ns > cutoff_ns);
  if (!inside && stack != nullptr &&
      (awaits_message(*stack, history::Op::kSend) || awaits_message(*stack, history::Op::kRecv))) {
    if (open && awaits_message(*stack, last->op) && blocks_by_name(*stack))
      return Activity{.doing = Doing::kInCall, .thread = tid, .calls = {last}};
    return wait_for_any_message(state, *stack, pair, tid);
  }
  if (stack != nullptr && lasted_ns(run, *stack, is_in_new_group) >= kStoreMayTakeNs)
    return Activity{.doing = Doing::kInNewGroup, .thread = tid};
  if (inside || (stack != nullptr && in_collective_wait(*stack))) {
    if (open && (inside || !last->async)) {
      if (last->timeout_ms >= 0)
        return std::nullopt;  // The caller has set a limit of its own: it will go on by itself.
      return Activity{.doing = Doing::kInCall, .thread = tid, .calls = {last}};
    }
    if (state.open.empty() || std::any_of(state.open.begin(), state.open.end(),
                                          [](const Collective* c) { return c->timeout_ms >= 0; }))
      return std::nullopt;
    return Activity{.doing = Doing::kInCall, .thread = tid, .calls = state.open};
  }
  if (tid == process.pid && idle_in_conversation(run, state.rank, cutoff_ns))
    return Activity{.doing = Doing::kNextRequest, .thread = tid};
  return std::nullopt;
}

}  // namespace

bool ProcessState::one_is(Doing doing) const {
  return std::any_of(waits.begin(), waits.end(),
                     [&](const Activity& wait) { return wait.doing == doing; });
}

std::optional<SiteRef> whereabouts(const ProcessState& state, std::uint64_t cutoff_ns,
                                   const std::string& role) {
  const bool idle = state.one_is(Doing::kNextRequest);
  if (state.main_stack != nullptr && !idle) {
    if (auto site = site_of(state.rank, state.main_stack->frames, role))
      return site;
  }
  const auto& calls = state.process->collectives;
  for (auto call = calls.rbegin(); call != calls.rend(); ++call) {
    if (call->issued_ns > cutoff_ns)
      continue;
    if (auto site = site_of(*state.process, *call, role))
      return site;
  }
  return std::nullopt;
}

std::vector<const Collective*> open_calls(const Process& process, std::uint64_t cutoff_ns) {
  std::vector<const Collective*> open;
  std::map<std::uint32_t, bool> went_on;  // Threads that issued something later.
  for (auto call = process.collectives.rbegin(); call != process.collectives.rend(); ++call) {
    if (call->issued_ns > cutoff_ns)
      continue;
    const bool completed = call->completed_ns && *call->completed_ns <= cutoff_ns;
    const bool returned = call->returned_ns && *call->returned_ns <= cutoff_ns;
    const bool left = !call->async && returned && went_on[call->thread];
    if (!completed && !left)
      open.push_back(&*call);
    went_on[call->thread] = true;
  }
  std::reverse(open.begin(), open.end());
  return open;
}

ProcessState state_of(const Run& run, const Process& process, std::uint64_t cutoff_ns) {
  ProcessState state;
  state.rank = *process.rank;
  state.process = &process;
  state.open = open_calls(process, cutoff_ns);
  state.last_event_ns = last_event_ns(process, cutoff_ns);
  state.main_stack = last_stack(run, process, process.pid, state.last_event_ns, cutoff_ns);
  const auto not_quiescent = [&](std::string why) {
    state.not_quiescent = std::move(why);
    return state;
  };
  const SamplePair pair = last_pair(run, process, cutoff_ns);
  if (pair.first == nullptr)
    return not_quiescent("it was not sampled twice");
  if (is_behind(process, *pair.second))
    return not_quiescent("its history is not known up to the sample");
  if (moved(state, pair))
    return not_quiescent("it moved between two samples");
  if (thread_in(*pair.second, process.pid) == nullptr)
    return not_quiescent("its main thread was not sampled");
  std::vector<std::int32_t> issuers{process.pid};
  for (const Collective& call : process.collectives) {
    const auto tid = static_cast<std::int32_t>(call.thread);
    if (call.issued_ns <= cutoff_ns &&
        std::find(issuers.begin(), issuers.end(), tid) == issuers.end())
      issuers.push_back(tid);
  }
  const bool python = runs_python(run, process);
  std::vector<std::int32_t> for_own_threads;
  for (const ThreadState& thread : pair.second->threads) {
    if (std::find(issuers.begin(), issuers.end(), thread.tid) == issuers.end()) {
      if (std::string why = may_act(run, process, pair, thread, python, cutoff_ns); !why.empty())
        return not_quiescent(std::move(why));
      continue;
    }
    if (!slept(pair, thread.tid))
      return not_quiescent(fmt::format("thread {} is active", thread.tid));
    const StackSample* const stack =
        last_stack(run, process, thread.tid, state.last_event_ns, cutoff_ns);
    if (auto wait = wait_of(run, state, pair, thread.tid, cutoff_ns))
      state.waits.push_back(std::move(*wait));
    else if (stack != nullptr && is_idle_in_autograd(*stack))
      continue;
    else if (waits_for_own_threads(pair, thread.tid))
      for_own_threads.push_back(thread.tid);
    else
      return not_quiescent(fmt::format("thread {} is in no wait that is known", thread.tid));
  }
  const std::string waker =
      for_own_threads.empty() ? "" : may_wake(run, state, pair, issuers, cutoff_ns);
  for (const std::int32_t tid : for_own_threads) {
    const StackSample* const stack = last_stack(run, process, tid, state.last_event_ns, cutoff_ns);
    if (waker.empty())
      state.waits.push_back({.doing = Doing::kOwnThread, .thread = tid});
    else if (stack == nullptr || !waits_for_a_thread(run, state, *stack, cutoff_ns))
      return not_quiescent(fmt::format(
          "thread {} waits for another of its process, and {} may wake it", tid, waker));
  }
  if (state.waits.empty())
    return not_quiescent("none of its threads is in a call");
  state.quiescent = true;
  if (was_idle(pair))
    state.idle_from_ns = pair.first->at_ns;
  return state;
}

}  // namespace lockstep
