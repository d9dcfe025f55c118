#include "harness/diagnose/look.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <thread>
#include <utility>

#include "harness/base/clock.h"
#include "harness/diagnose/rights.h"
#include "harness/launch/prober.h"
#include "harness/model/stack_patterns.h"
#include "harness/os/awaited.h"
#include "harness/os/proc.h"

namespace lockstep::diagnose {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

constexpr milliseconds kSettle{20};    // From letting threads go until they sleep again.
constexpr milliseconds kBetween{240};  // Readings of states: more than kStillNs.
constexpr milliseconds kBetweenIfSleepIsNotTold{2'000};
constexpr milliseconds kStacksLimit{4'000};
constexpr std::size_t kChildrenMax = 32, kWorkersMax = 16;

/// When a thread was last on a processor, in milliseconds of the scheduler's clock; none where that
/// is not told, as of a thread that was moved to another processor in its sleep.
std::optional<double> last_ran_ms(const std::string& thread) {
  std::ifstream file("/proc/" + thread + "/sched");
  for (std::string line; std::getline(file, line);) {
    if (line.rfind("se.exec_start", 0) != 0)
      continue;
    const double ms = std::strtod(line.c_str() + line.find(':') + 1, nullptr);
    return ms > 0 ? std::optional(ms) : std::nullopt;
  }
  return std::nullopt;
}

std::string name_of_thread(std::int32_t pid, std::int32_t tid) {
  std::ifstream file(fmt::format("/proc/{}/task/{}/comm", pid, tid));
  std::string name;
  std::getline(file, name);
  return name;
}

/// When a thread of Gloo's last began or ended a collective, each of which one of them executes.
std::optional<double> last_collective_ms(std::int32_t pid,
                                         const std::vector<os::ThreadStat>& threads) {
  std::optional<double> last;
  for (const os::ThreadStat& thread : threads) {
    if (name_of_thread(pid, thread.tid) != "pt_gloo_runloop")
      continue;
    const auto ms = last_ran_ms(fmt::format("{}/task/{}", pid, thread.tid));
    if (!ms || thread.state != 'S')
      return std::nullopt;
    last = std::max(last.value_or(0), *ms);
  }
  return last;
}

Frame as_frame(const os::PythonFrame& frame) {
  return {.module = frame.file,
          .offset = frame.position,
          .file = frame.file,
          .line = frame.line,
          .function = frame.function};
}

void add_python(StackSample& sample, const std::vector<os::PythonFrame>& frames) {
  for (const os::PythonFrame& frame : frames) {
    for (const auto& [name, value] : frame.integers)
      sample.variables.push_back({static_cast<std::uint32_t>(sample.frames.size()), name, value});
    sample.frames.push_back(as_frame(frame));
  }
}

/// What Gloo is in, by its function: what a thread of its own does for the collective in flight.
std::string gloo_operation(const std::vector<os::NativeFrame>& frames) {
  constexpr std::array kOperations{"allreduce", "allgatherv", "allgather",      "alltoallv",
                                   "alltoall",  "broadcast",  "barrier",        "gatherv",
                                   "gather",    "scatter",    "reduce_scatter", "reduce"};
  for (const os::NativeFrame& frame : frames) {
    for (const char* const operation : kOperations) {
      if (frame.function.rfind(fmt::format("gloo::{}(", operation), 0) == 0 ||
          frame.function.rfind(fmt::format("gloo::(anonymous namespace)::{}(", operation), 0) == 0)
        return operation;
    }
  }
  return "";
}

/// The same lines, and the same rounds of the loops around them.
bool same_place(const std::vector<os::PythonFrame>& a, const std::vector<os::PythonFrame>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const auto& x, const auto& y) {
    return x.file == y.file && x.position == y.position && x.integers == y.integers;
  });
}

bool is_gone(const os::ProcessId& id) {
  const auto process = os::read_process(id.pid);
  return !process || process->id != id || process->zombie();
}

}  // namespace

Look Looker::look() {
  Look look;
  look.at_ns = now_ns();
  look.run.live = true;
  std::int32_t local = 0;
  for (const RankProcess& rank : ranks_) {
    look.world_size = std::max({look.world_size, rank.world_size, rank.rank.value + 1});
    local = std::max(local, rank.local_size);
    look.run.starts.push_back({.role = Role::kRank,
                               .rank = rank.rank,
                               .pid = rank.id.pid,
                               .command = rank.command,
                               .world_size = rank.world_size,
                               .meets_at = rank.meets_at});
    look.ranks.push_back(
        {.rank = rank.rank, .id = rank.id, .pid = rank.id.pid, .ended = is_gone(rank.id)});
  }
  look.all_here = local > 0 && local == look.world_size;
  look.run.plan.world_size = look.world_size;
  read_sleep(look);
  read_python(look);
  read_native(look);
  const bool told = std::any_of(look.ranks.begin(), look.ranks.end(),
                                [](const Looked& one) { return one.asleep_since_ns.has_value(); });
  std::this_thread::sleep_for(kSettle);
  read_states(look);
  std::this_thread::sleep_for(told ? kBetween : kBetweenIfSleepIsNotTold);
  read_states(look);
  read_python_again(look);
  notes_.save();
  for (StackSample& stack : look.run.stacks) {
    for (Frame& frame : stack.frames) {
      if (!is(frame, Sign::kOfLibrary))
        resolver_.resolve(frame);
    }
  }
  for (Looked& one : look.ranks) {
    for (Worker& worker : one.workers) {
      for (Frame& frame : worker.stack.frames)
        resolver_.resolve(frame);
    }
  }
  return look;
}

void Looker::read_sleep(Look& look) {
  for (Looked& one : look.ranks) {
    if (one.ended)
      continue;
    const std::vector<os::ThreadStat> threads = os::read_threads(one.pid);
    const auto main = std::find_if(threads.begin(), threads.end(),
                                   [&](const os::ThreadStat& t) { return t.tid == one.pid; });
    // What we have stopped it for since is no wake of its own.
    if (main != threads.end())
      one.asleep_since_ns = notes_.since_ns(one.id, main->context_switches);
    if (one.asleep_since_ns)
      continue;
    auto theirs = last_ran_ms(fmt::format("{0}/task/{0}", one.pid));
    if (!theirs)
      theirs = last_collective_ms(one.pid, threads);
    const auto ours = last_ran_ms("self");
    if (!theirs || !ours || main == threads.end())
      continue;
    const auto for_ns = static_cast<std::uint64_t>(std::max(0.0, *ours - *theirs) * 1e6);
    const std::uint64_t since_ns =
        look.at_ns - (main->state == 'R' ? 0 : std::min(for_ns, look.at_ns));
    one.asleep_since_ns = std::max(since_ns, os::monotonic_ns_of(one.id.start_ticks));
  }
}

void Looker::read_python(Look& look) {
  for (Looked& one : look.ranks) {
    if (one.ended)
      continue;
    Result<os::PythonProcess> process = os::read_python_process(one.pid);
    if (!process) {
      const std::optional<Error> refused = why_refused(one.pid);
      one.unseen = refused ? refused->what : process.error().what;
      one.help = refused ? refused->help : "";
      continue;
    }
    if (process->groups)
      one.one_group = process->groups->size() <= 1;
    std::size_t others_in_a_call = 0;
    for (const os::PythonThread& thread : process->threads) {
      std::optional<Call> call = call_of(thread.frames, process->groups, look.world_size);
      StackSample sample{.at_ns = now_ns(), .rank = one.rank, .pid = one.pid, .tid = thread.tid};
      if (thread.tid != one.pid)
        sample.started_ns = os::thread_started_ns(one.pid, thread.tid);
      sample.handles = thread.handles;
      for (const os::PythonFrame& frame : thread.passed)
        sample.raised_at.frames.push_back(as_frame(frame));
      add_python(sample, thread.frames);
      look.run.stacks.push_back(std::move(sample));
      if (thread.tid == one.pid) {
        one.call = std::move(call);
        one.moved = thread.moving;
        first_[one.pid] = thread.frames;
      } else if (call && ++others_in_a_call == 1) {
        one.call_of_a_thread = std::move(call);
        one.thread_of_call = thread.tid;
      }
    }
    if (others_in_a_call > 1)
      one.call_of_a_thread.reset();
  }
}

void Looker::read_python_again(Look& look) {
  for (Looked& one : look.ranks) {
    const auto before = first_.find(one.pid);
    if (one.ended || before == first_.end())
      continue;
    const auto threads = os::read_python_threads(one.pid);
    if (!threads) {
      const auto process = os::read_process(one.pid);
      one.ended = !process || process->zombie();
      continue;
    }
    for (const os::PythonThread& thread : *threads) {
      if (thread.tid == one.pid)
        one.moved |= thread.moving || !same_place(before->second, thread.frames);
    }
  }
}

// After the Python ones, which tell most: only where these do not say that it is in a call.
void Looker::read_native(Look& look) {
  const Clock::time_point deadline = Clock::now() + kStacksLimit;
  for (Looked& one : look.ranks) {
    const bool named = one.call && !one.call->op.empty() && one.call->detail.empty();
    if (one.ended || named)
      continue;
    if (os::sleeps_in_restartable_wait(one.pid, one.pid)) {
      const auto frames = sampler_.sample(one.pid, one.pid, deadline);
      if (frames)
        add_native(look, one, *frames);
      else if (one.unseen.empty() && !one.call)
        one.no_native = frames.error().what;
    }
    const StackSample* const main = main_stack_of(look.run, one.pid);
    if (main == nullptr || !(one.call || in_collective_wait(*main)))
      continue;
    for (const os::ThreadStat& thread : os::read_threads(one.pid)) {
      if (!one.in_flight.empty() || name_of_thread(one.pid, thread.tid) != "pt_gloo_runloop" ||
          !os::sleeps_in_restartable_wait(one.pid, thread.tid))
        continue;
      if (const auto frames = sampler_.sample(one.pid, thread.tid, deadline))
        one.in_flight = gloo_operation(*frames);
    }
  }
}

// The native frames are inside of the Python ones.
void Looker::add_native(Look& look, const Looked& one, const std::vector<os::NativeFrame>& frames) {
  auto stack =
      std::find_if(look.run.stacks.begin(), look.run.stacks.end(),
                   [&](const StackSample& s) { return s.pid == one.pid && s.tid == one.pid; });
  if (stack == look.run.stacks.end()) {
    stack = look.run.stacks.insert(
        stack, {.at_ns = now_ns(), .rank = one.rank, .pid = one.pid, .tid = one.pid});
  }
  std::vector<Frame> all;
  for (const os::NativeFrame& frame : frames)
    all.push_back({.module = frame.module, .offset = frame.offset, .function = frame.function});
  for (IntegerVariable& variable : stack->variables)
    variable.frame += static_cast<std::uint32_t>(all.size());
  all.insert(all.end(), stack->frames.begin(), stack->frames.end());
  stack->frames = std::move(all);
}

void Looker::read_states(Look& look) {
  const std::vector<os::ProcessStat> all = os::read_processes();
  std::vector<std::int32_t> pids;
  for (const Looked& one : look.ranks)
    pids.push_back(one.pid);
  for (Looked& one : look.ranks) {
    if (one.ended)
      continue;
    StateSample sample{.at_ns = now_ns(), .rank = one.rank, .pid = one.pid};
    for (os::ThreadStat& thread : os::read_threads(one.pid)) {
      if (thread.tid == one.pid)
        notes_.note(one.id, thread.context_switches, one.asleep_since_ns.value_or(look.at_ns));
      sample.threads.push_back(launch::state_of(one.pid, std::move(thread)));
    }
    add_children(sample, one, all);
    std::vector<std::int32_t> others = pids;
    std::erase(others, one.pid);
    for (const std::int32_t holder : os::holders_of_what_it_waits_for(one.pid, others)) {
      for (const Looked& other : look.ranks) {
        if (other.pid == holder)
          sample.held_by.insert(other.rank);
      }
    }
    look.run.states.push_back(std::move(sample));
  }
}

void Looker::add_children(StateSample& sample, Looked& one,
                          const std::vector<os::ProcessStat>& all) {
  const bool first = one.workers.empty();
  for (const os::ProcessStat& process : all) {
    if (process.parent != one.pid || sample.children.size() >= kChildrenMax)
      continue;
    const std::int32_t pid = process.id.pid;
    sample.children.push_back({.pid = pid,
                               .name = process.name,
                               .state = process.state,
                               .wchan = os::wait_channel(pid, pid)});
    if (!first || process.name != "pt_data_worker" || one.workers.size() >= kWorkersMax)
      continue;
    Worker worker{.pid = pid};
    if (const auto threads = os::read_python_threads(pid)) {
      for (const os::PythonThread& thread : *threads) {
        if (thread.tid == pid)
          add_python(worker.stack, thread.frames);
      }
    }
    one.workers.push_back(std::move(worker));
  }
  if (!sample.children.empty())
    sample.waits_for_child = os::waits_for_child(sample.pid);
}

const StackSample* main_stack_of(const Run& run, std::int32_t pid) {
  for (const StackSample& stack : run.stacks) {
    if (stack.pid == pid && stack.tid == pid)
      return &stack;
  }
  return nullptr;
}

}  // namespace lockstep::diagnose
