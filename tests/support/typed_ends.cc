// How a typed run comes to stand still, and how its ranks end.
#include <algorithm>
#include <utility>

#include "harness/history/rank_places.h"
#include "tests/support/typed_run.h"

namespace lockstep::testing {

Process& process_of(Run& run, Rank rank) {
  return *std::find_if(run.processes.begin(), run.processes.end(),
                       [&](const Process& process) { return process.rank == rank; });
}

std::uint64_t stall_ns(const Run& run) { return last_event(run) + 100 * kMs; }

void interrupt(Run& run, std::chrono::milliseconds patience) {
  const auto later_ns = static_cast<std::uint64_t>(std::chrono::nanoseconds(patience).count());
  const std::uint64_t stood_still_ns = stall_ns(run);
  for (Acted& act : run.acted)
    act.at_ns += later_ns;
  for (ProcessEnd& end : run.ends) {
    if (end.at_ns > stood_still_ns)
      end.at_ns += later_ns;
  }
  run.acted.push_back(
      {0, stood_still_ns + later_ns + 350 * kMs, "interrupted", std::nullopt, 0, "SIGINT"});
}

ThreadState& thread_of(StateSample& sample, std::int32_t tid) {
  return *std::find_if(sample.threads.begin(), sample.threads.end(),
                       [&](const ThreadState& thread) { return thread.tid == tid; });
}

StackSample stack_of(const Run& run, Rank rank, std::vector<std::string> functions) {
  StackSample stack;
  stack.at_ns = stall_ns(run);
  stack.rank = rank;
  stack.pid = stack.tid = 1000 + rank.value;
  for (std::string& function : functions)
    stack.frames.push_back({"/usr/lib/libtorch_cpu.so", 1, "", 0, std::move(function), {}});
  return stack;
}

void hang(Run& run, bool kill) {
  const std::uint64_t first = stall_ns(run);
  for (const Process& process : run.processes) {
    std::vector<std::int32_t> issuers{process.pid};
    bool open = false;
    for (const Collective& c : process.collectives) {
      const auto tid = static_cast<std::int32_t>(c.thread);
      if (std::find(issuers.begin(), issuers.end(), tid) == issuers.end())
        issuers.push_back(tid);
      open |= !c.completed_ns;
    }
    for (const std::uint64_t at_ns : {first, first + 300 * kMs}) {
      StateSample sample{0, at_ns, process.rank, process.pid, process.collectives.size(), {}};
      for (const std::int32_t tid : issuers)
        sample.threads.push_back({tid, 'S', "futex_do_wait", 42, 7 * kMs});
      run.states.push_back(std::move(sample));
    }
    for (const std::int32_t tid : issuers) {
      if (!open)
        continue;
      StackSample stack =
          stack_of(run, *process.rank, {"pthread_cond_wait", "c10d::Work::wait", "step"});
      stack.tid = tid;
      run.stacks.push_back(std::move(stack));
    }
  }
  if (!kill) {
    run.live = true;
    run.journal_complete = false;
    run.ends.clear();
    return;
  }
  const std::uint64_t end_ns = first + 400 * kMs;
  for (ProcessEnd& end : run.ends) {
    const bool failed = end.signal || end.exit_status.value_or(0) != 0;
    if (end.at_ns < (failed ? end_ns : first))
      continue;  // It had left before.
    run.acted.push_back({0, end_ns, "TERM", end.rank, end.pid, "deadlock"});
    end.at_ns = end_ns + 10 * kMs;
    end.exit_status.reset();
    end.signal = 15;
    end.our_signal = 15;
    end.our_reason = "deadlock";
  }
}

void ends_with_status(Run& run, Rank rank, std::int32_t status, std::uint64_t at_ns) {
  for (ProcessEnd& end : run.ends) {
    if (end.rank == rank) {
      end.at_ns = at_ns;
      end.exit_status = status;
    }
  }
}

void raises(Run& run, Rank rank, const std::string& text, std::uint64_t at_ns) {
  run.raised.push_back(
      {.at_ns = at_ns, .rank = rank, .pid = process_of(run, rank).pid, .text = text});
  ends_with_status(run, rank, 1, at_ns + kMs);
}

void ends_with_signal(Run& run, Rank rank, std::int32_t signal, std::uint64_t at_ns) {
  ends_with_status(run, rank, 0, at_ns);
  for (ProcessEnd& end : run.ends) {
    if (end.rank == rank) {
      end.exit_status.reset();
      end.signal = signal;
    }
  }
}

void add_failed_attempt(Run& run) {
  const std::uint64_t at_ns = kStart / 3;
  for (const Rank rank : RankSet::all(run.plan.world_size)) {
    ProcessEnd end;
    end.at_ns = at_ns;
    end.role = Role::kRank;
    end.rank = rank;
    end.pid = 500 + rank.value;
    end.exit_status = 1;
    run.ends.push_back(end);
    run.starts.push_back({0, kStart / 5, Role::kRank, rank, 500 + rank.value});
    run.starts.push_back({0, at_ns + kMs, Role::kRank, rank, 1000 + rank.value});
  }
  history::settle_places(run);
}

}  // namespace lockstep::testing
