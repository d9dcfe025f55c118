#include "harness/model/activity.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "harness/history/hosts.h"
#include "harness/model/group_view.h"
#include "harness/model/stack_patterns.h"

namespace lockstep {
namespace {

/// By where a thread sleeps in the kernel. A futex is not there: it may be any wait of the process.
Doing by_wait_channel(std::string_view channel) {
  switch (kernel_wait(channel)) {
    case KernelWait::kTimer:
      return Doing::kTimer;
    case KernelWait::kPipe:
      return Doing::kPipe;
    case KernelWait::kEpoll:
    case KernelWait::kPoll:
      return Doing::kAwaited;
    case KernelWait::kChild:
      return Doing::kChild;
    case KernelWait::kFileLock:
      return Doing::kFileLock;
    case KernelWait::kTerminal:
      return Doing::kTerminal;
    case KernelWait::kNone:
    case KernelWait::kFutex:
      break;
  }
  return Doing::kUnknown;
}

/// Since the last thing it did it woke up and went to sleep again: it asks for something over and
/// over, and what that is does not show.
bool asks_again(const Run& run, const StateSample& last, const ThreadState& now) {
  return std::any_of(run.states.begin(), run.states.end(), [&](const StateSample& sample) {
    const ThreadState* then = sample.pid == last.pid ? thread_in(sample, sample.pid) : nullptr;
    return then != nullptr && sample.head == last.head &&
           kernel_wait(then->wchan) == KernelWait::kTimer &&
           then->context_switches != now.context_switches;
  });
}

/// What it sleeps in, by its Python code or else by the kernel.
Activity asleep(const Run& run, const StateSample& state, const ThreadState& thread,
                const StackSample* stack) {
  Activity activity{.thread = thread.tid, .held_by = state.held_by};
  if (stack != nullptr && waits_for_a_task(*stack))
    activity.doing = Doing::kPoolTask;
  else if (stack != nullptr && in_data_loader(stack->frames))
    activity.doing = Doing::kLoaderWorker;
  else if (kernel_wait(thread.wchan) == KernelWait::kTimer && asks_again(run, state, thread))
    return {};
  else if (!state.held_by.empty() && state.waits_for_child)
    activity.doing = Doing::kChild;
  else
    activity.doing = by_wait_channel(thread.wchan);
  if (activity.doing == Doing::kUnknown && !state.held_by.empty())
    activity.doing = Doing::kAwaited;
  return activity;
}

std::string_view words_of(Doing doing) {
  switch (doing) {
    case Doing::kStopped:
      return "is stopped by a signal";
    case Doing::kTraced:
      return "is held by a debugger";
    case Doing::kPoolTask:
      return "waits for a task of its pool";
    case Doing::kLoaderWorker:
      return "waits for a data loader worker";
    case Doing::kChild:
      return "waits for a child to end";
    case Doing::kFileLock:
      return "waits for a locked file";
    case Doing::kPipe:
      return "reads from or writes to a pipe";
    case Doing::kAwaited:
      return "waits for a pipe, socket or file";
    case Doing::kTerminal:
      return "waits for input from a terminal";
    case Doing::kDevice:
      return "waits for a disk or device";
    case Doing::kTimer:
      return "sleeps";
    case Doing::kOwnThread:
      return "waits for a lock, a queue or a thread of its own";
    case Doing::kInCall:
    case Doing::kNextRequest:
    case Doing::kInNewGroup:
    case Doing::kUnknown:
      break;
  }
  return "";
}

}  // namespace

std::string in_words(const Activity& activity) {
  const std::string_view what = words_of(activity.doing);
  const bool by_others = !activity.held_by.empty() && activity.doing >= Doing::kChild &&
                         activity.doing != Doing::kDevice;
  if (!by_others)
    return std::string(what);
  const std::string who =
      fmt::format("{} {}", words(activity.held_by), activity.held_by.size() == 1 ? "has" : "have");
  return activity.doing == Doing::kChild
             ? fmt::format("waits for a child, and that for something that {}", who)
             : fmt::format("{}, which {}", what, who);
}

bool waits_for_others(const StackSample* stack) {
  return stack != nullptr && (awaits_device(*stack) || any(stack->frames, Sign::kTransport));
}

Activity held_up(const Run& run, std::int32_t pid, const StackSample* stack,
                 std::uint64_t cutoff_ns) {
  const StateSample* last = last_state(run, pid, cutoff_ns);
  const ThreadState* now = last == nullptr ? nullptr : thread_in(*last, pid);
  const bool for_a_while =
      now != nullptr && last->at_ns > kStillNs &&
      std::any_of(run.states.begin(), run.states.end(), [&](const StateSample& sample) {
        const ThreadState* then = thread_in(sample, pid);
        return sample.pid == pid && sample.at_ns <= last->at_ns - kStillNs && then != nullptr &&
               then->context_switches == now->context_switches;
      });
  if (!for_a_while)
    return {};
  switch (now->state) {
    case 'T':  // Whatever it was in, it does nothing of it.
      return {.doing = Doing::kStopped, .thread = pid, .held_by = last->held_by};
    case 't':
      return {.doing = Doing::kTraced, .thread = pid, .held_by = last->held_by};
    case 'D':
      return waits_for_others(stack)
                 ? Activity{}
                 : Activity{.doing = Doing::kDevice, .thread = pid, .held_by = last->held_by};
    case 'S':
      return waits_for_others(stack) ? Activity{} : asleep(run, *last, *now, stack);
    default:
      return {};
  }
}

const StateSample* last_state(const Run& run, std::int32_t pid, std::uint64_t cutoff_ns) {
  const StateSample* last = nullptr;
  for (const StateSample& state : run.states) {
    if (state.pid == pid && state.at_ns <= cutoff_ns &&
        (last == nullptr || state.at_ns >= last->at_ns))
      last = &state;
  }
  return last;
}

const ThreadState* thread_in(const StateSample& sample, std::int32_t tid) {
  const auto at = std::find_if(sample.threads.begin(), sample.threads.end(),
                               [&](const ThreadState& thread) { return thread.tid == tid; });
  return at == sample.threads.end() ? nullptr : &*at;
}

std::string in_words(const ChildState& child) {
  const std::string who =
      fmt::format("child {} ({})", history::words_of_pid(child.pid), child.name);
  switch (child.state) {
    case 'Z':
      return who + " has ended";
    case 'T':
      return who + " is stopped";
    case 'D':
      return who + " waits for a disk or device";
    case 'S':
      return who + (child.wchan.empty() ? " sleeps" : fmt::format(" sleeps in {}", child.wchan));
    default:
      return who + " runs";
  }
}

}  // namespace lockstep
