// Goal: whatever could still move is never called a deadlock. Each test changes one thing of a run
// whose deadlock is proven, and the proof must go.
#include <gtest/gtest.h>

#include <functional>

#include "checkers/hang/deadlock.h"
#include "harness/history/rank_places.h"
#include "tests/support/typed_run.h"

namespace lockstep::testing {
namespace {

using checkers::certain_deadlock;

/// Rank 1 is idle in the conversation, the others wait for it for ever.
lockstep::Run proven_run(const Row& waits = {all_reduce("dp", 8).pending()}) {
  const Row step = times(3, {all_reduce("dp", 8)});
  lockstep::Run run = make_run({step + waits, step, step + waits});
  const std::uint64_t end = stall_ns(run);
  for (const Rank rank : RankSet::all(3))
    ask(run, rank, "step", kStart - kMs,
        rank == Rank{1} ? std::optional(end - 10 * kMs) : std::nullopt);
  hang(run, false);
  return run;
}

class Trap : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(certain_deadlock(run_).has_value()); }
  void expect_no_proof() {
    const auto reason = certain_deadlock(run_);
    EXPECT_FALSE(reason.has_value()) << reason.value_or("");
  }
  void each_sample_of(Rank rank, void (*change)(ThreadState&, bool second)) {
    bool second = false;
    for (StateSample& sample : run_.states) {
      if (sample.rank == rank) {
        change(thread_of(sample, 1000 + rank.value), second);
        second = true;
      }
    }
  }
  lockstep::Run run_ = proven_run();
};

TEST_F(Trap, ARankStillBusyWithItsRequest) {  // A 20-minute download, a slow loader.
  for (Request& request : run_.requests)
    request.answered_ns.reset();
  expect_no_proof();
}

TEST_F(Trap, ARequestOnItsWayToTheIdleHost) {
  ask(run_, Rank{1}, "step", stall_ns(run_) + 100 * kMs, std::nullopt);
  expect_no_proof();
}

TEST_F(Trap, NobodyElseHasAnOpenRequest) {  // Then the supervisor may send the next one.
  for (Request& request : run_.requests)
    request.answered_ns = stall_ns(run_) - kMs;
  expect_no_proof();
}

TEST_F(Trap, AThreadThatRan) {
  each_sample_of(
      Rank{0}, [](ThreadState& thread, bool second) { thread.context_switches += second ? 1 : 0; });
  expect_no_proof();
}

// Ranks 1 and 2 are stuck for ever, whatever rank 0 does. It is given some time to get where it is
// going.
TEST_F(Trap, ARankThatIsNotPartOfItHoldsTheProofBackForAWhile) {
  each_sample_of(
      Rank{0}, [](ThreadState& thread, bool second) { thread.context_switches += second ? 1 : 0; });
  expect_no_proof();
  for (StateSample& sample : run_.states)
    sample.at_ns += sample.at_ns > stall_ns(run_) ? 10'000 * kMs : 0;
  EXPECT_TRUE(certain_deadlock(run_).has_value());
}

TEST_F(Trap, AThreadThatSpins) {  // while not w.is_completed()
  each_sample_of(Rank{0}, [](ThreadState& thread, bool second) {
    thread.state = 'R';
    thread.cpu_ns += second ? 300 * kMs : 0;
  });
  expect_no_proof();
}

TEST_F(Trap, AThreadUnderADebugger) {
  each_sample_of(Rank{0}, [](ThreadState& thread, bool) { thread.state = 't'; });
  expect_no_proof();
}

TEST_F(Trap, AProcessThatIsStopped) {
  each_sample_of(Rank{1}, [](ThreadState& thread, bool) { thread.state = 'T'; });
  expect_no_proof();
}

TEST_F(Trap, SamplesTooCloseTogether) {
  for (StateSample& sample : run_.states)
    sample.at_ns = std::min(sample.at_ns, stall_ns(run_) + 199 * kMs);
  expect_no_proof();
}

TEST_F(Trap, AHistoryReadBeforeTheSample) {
  for (StateSample& sample : run_.states)
    sample.head += sample.rank == Rank{1} ? 1 : 0;
  expect_no_proof();
}

TEST_F(Trap, ARecordAfterTheFirstSample) {
  process_of(run_, Rank{0}).collectives.back().returned_ns = stall_ns(run_) + 100 * kMs;
  expect_no_proof();
}

TEST_F(Trap, AWaitWithALimitOfItsCaller) {  // A caught work.wait(2 s).
  for (StackSample& stack : run_.stacks)
    stack.frames[0].function = "pthread_cond_clockwait";
  expect_no_proof();
}

TEST_F(Trap, ACollectiveWithALimitOfItsCaller) {  // A monitored_barrier probe.
  for (Process& process : run_.processes)
    process.collectives.back().timeout_ms = 2000;
  expect_no_proof();
}

TEST_F(Trap, AStoreWaitIsNoOperation) {
  for (StackSample& stack : run_.stacks)
    stack.frames[1].function = "c10d::TCPStore::wait";
  expect_no_proof();
}

TEST_F(Trap, AWaitingThreadWithoutAStack) {
  run_.stacks.clear();
  expect_no_proof();
}

TEST_F(Trap, AnIssuerThatIsInNoKnownWait) {  // A thread that issued once and may issue again.
  Process& process = process_of(run_, Rank{1});
  process.collectives[1].thread = 2001;
  for (StateSample& sample : run_.states) {
    if (sample.rank == Rank{1})
      sample.threads.push_back({2001, 'S', "futex_do_wait", 3, kMs});
  }
  expect_no_proof();
}

TEST_F(Trap, APythonThreadThatMayIssueForTheFirstTime) {  // A checkpoint thread on its own group.
  for (StateSample& sample : run_.states) {
    if (sample.rank == Rank{1})
      sample.threads.push_back({2001, 'S', "do_epoll_wait", 3, kMs});
  }
  ASSERT_TRUE(
      certain_deadlock(run_).has_value());  // A native helper of a native program is no issuer.
  StackSample python = stack_of(run_, Rank{1}, {"poll", "write_checkpoint"});
  python.tid = 2001;
  python.frames[1].file = "checkpoint.py";
  run_.stacks.push_back(python);
  expect_no_proof();
  run_.stacks.back().frames[1].function = "_pin_memory_loop";  // One of the short list.
  EXPECT_TRUE(certain_deadlock(run_).has_value());
}

TEST_F(Trap, AReaderThatWaitsForRoomInItsQueue) {  // The C library's own functions have no names.
  for (StateSample& sample : run_.states) {
    if (sample.rank == Rank{1})
      sample.threads.push_back({2001, 'S', "futex_do_wait", 3, kMs});
  }
  StackSample reader = stack_of(run_, Rank{1}, {"", "PyThread_acquire_lock_timed"});
  reader.tid = 2001;
  reader.frames.push_back({"/py/queue.py", 7, "/py/queue.py", 140, "Queue.put", {}});
  run_.stacks.push_back(reader);
  expect_no_proof();
  const auto waits = [&](bool for_ever) {
    for (StateSample& sample : run_.states) {
      ThreadState& last = sample.threads.back();
      last.for_own_threads = last.tid == 2001;
      last.for_ever = last.tid == 2001 && for_ever;
    }
  };
  waits(false);
  expect_no_proof();
  waits(true);
  EXPECT_TRUE(certain_deadlock(run_).has_value());
}

TEST_F(Trap, WhatAProgramCallsItsFunctionsSaysNothing) {
  for (StackSample& stack : run_.stacks) {
    stack.frames.push_back({.function = "train::Ranks::wait_for_all()"});
    stack.frames.push_back({"/app/train.py", 7, "/app/train.py", 9, "wait_for_everyone", {}});
  }
  EXPECT_TRUE(certain_deadlock(run_).has_value()) << "it is no wait that ends by itself";
  process_of(run_, Rank{1}).sites.push_back({{Frame{"/app/train.py", 1, "", 7, "main", {}}}});
  for (StateSample& sample : run_.states) {
    if (sample.rank == Rank{1})
      sample.threads.push_back({2001, 'S', "do_epoll_wait", 3, kMs});
  }
  StackSample thread = stack_of(run_, Rank{1}, {"epoll_wait"});
  thread.tid = 2001;
  thread.frames.push_back({"/app/train.py", 7, "/app/train.py", 31, "sem_wait_or_save", {}});
  run_.stacks.push_back(thread);
  expect_no_proof();  // Nor is that one a wait for a lock.
}

TEST_F(Trap, AThreadThatReportsAndOneOfTheProgramThatReports) {
  for (StateSample& sample : run_.states) {
    if (sample.rank == Rank{1})
      sample.threads.push_back({2001, 'S', "hrtimer_nanosleep", 3, kMs});
  }
  const auto runs = [&](const std::string& file) {
    StackSample thread = stack_of(run_, Rank{1}, {"clock_nanosleep"});
    thread.tid = 2001;
    thread.frames.push_back({"/py/site-packages/wandb/sdk/wait.py", 7, "", 30, "pause", {}});
    for (const std::string& module : {file, std::string("/py/threading.py")})
      thread.frames.push_back({module, 7, module, 31, "run", {}});
    run_.stacks.push_back(thread);
    return certain_deadlock(run_).has_value();
  };
  EXPECT_TRUE(runs("/py/site-packages/wandb/sdk/loop.py"));
  EXPECT_FALSE(runs("/app/wandb/save.py")) << "it may do anything";
}

TEST_F(Trap, AWaitOfTheStandardLibraryThatEndsByItself) {
  for (const char* const function :
       {"pthread_cond_clockwait", "bool std::condition_variable::wait_for<long, std::ratio<1l>>"}) {
    for (StackSample& stack : run_.stacks)
      stack.frames.front().function = function;
    expect_no_proof();
  }
}

TEST_F(Trap, APythonThreadThatIsOnlySeenFromOutside) {  // Native frames: of the interpreter.
  for (StateSample& sample : run_.states) {
    if (sample.rank == Rank{1})
      sample.threads.push_back({2001, 'S', "do_epoll_wait", 3, kMs});
  }
  StackSample native = stack_of(run_, Rank{1}, {"epoll_wait", "_PyEval_EvalFrameDefault"});
  native.tid = 2001;
  run_.stacks.push_back(native);
  expect_no_proof();
}

TEST_F(Trap, InAPythonProgramAThreadWithoutAStackMayBeItsOwn) {
  process_of(run_, Rank{1}).sites.push_back({{Frame{"/app/train.py", 1, "", 7, "main", {}}}});
  for (StateSample& sample : run_.states) {
    if (sample.rank == Rank{1})
      sample.threads.push_back({2001, 'S', "do_epoll_wait", 3, kMs});
  }
  expect_no_proof();
}

TEST_F(Trap, AnotherThreadThatSleepsForAWhileOrComputes) {
  for (StateSample& sample : run_.states) {
    if (sample.rank == Rank{1})
      sample.threads.push_back({2001, 'S', "hrtimer_nanosleep", 3, kMs});
  }
  expect_no_proof();
  for (StateSample& sample : run_.states) {
    if (sample.rank == Rank{1}) {
      sample.threads.back().wchan = "0";
      sample.threads.back().state = 'R';
      sample.threads.back().cpu_ns = sample.at_ns;
    }
  }
  expect_no_proof();
}

TEST_F(Trap, AGroupThatWasNotSeenFromItsCreation) {
  process_of(run_, Rank{1}).groups[0].seen_from_creation = false;
  expect_no_proof();
}

TEST_F(Trap, ADamagedHistory) {
  process_of(run_, Rank{1}).damaged = true;
  expect_no_proof();
}

TEST_F(Trap, AMemberOnAHostWithoutHistory) {
  run_.processes.erase(run_.processes.begin() + 1);
  expect_no_proof();
}

TEST_F(Trap, CallsCountedAndNotRecorded) {
  process_of(run_, Rank{1}).groups[0].issued += 1;
  expect_no_proof();
}

TEST_F(Trap,
       ACollectiveThatCompletedWithoutTheAbsentOne) {  // Then its calls are not all seen: LS901.
  process_of(run_, Rank{0}).groups[0].issued += 0;
  Process& process = process_of(run_, Rank{2});
  process.collectives.back().completed_ns = process.collectives.back().issued_ns + kMs;
  expect_no_proof();
}

TEST_F(Trap, OverlappedCallsAreNotHeldAgainstEachOther) {
  lockstep::Run run = make_run({{all_reduce("dp", 8).pending()}, {broadcast("dp", 8).pending()}});
  hang(run, false);
  ASSERT_TRUE(certain_deadlock(run).has_value());
  process_of(run, Rank{1}).collectives[0].overlapped = true;
  EXPECT_FALSE(certain_deadlock(run).has_value());
}

TEST_F(Trap, AnyOfSeveralAsyncOperationsMayFreeTheWaiter) {
  // The thread waits in c10d, but for which of the two is not known; nobody owes the first.
  lockstep::Run run =
      make_run({{all_reduce("dp", 8).async().pending(), all_reduce("dp", 9).async().pending()},
                {all_reduce("dp", 8).async().pending()}});
  const std::uint64_t end = stall_ns(run);
  ask(run, Rank{0}, "step", kStart - kMs, std::nullopt);
  ask(run, Rank{1}, "step", kStart - kMs, end - 10 * kMs);
  hang(run, false);
  EXPECT_FALSE(certain_deadlock(run).has_value());
}

TEST_F(Trap, AReduceScatterWhoseThreadWentOnIsDone) {
  using history::Op;
  run_ = proven_run({call(Op::kReduceScatter, "dp", 8, 4).unseen(), all_reduce("dp", 8).pending()});
  const Row step = times(3, {all_reduce("dp", 8)});
  lockstep::Run run = make_run(
      {step + Row{call(Op::kReduceScatter, "dp", 9, 3).unseen(), all_reduce("dp", 8).pending()},
       step + Row{call(Op::kReduceScatter, "dp", 9, 3).unseen()},
       step + Row{call(Op::kReduceScatter, "dp", 9, 3).unseen(), all_reduce("dp", 8).pending()}});
  const std::uint64_t end = stall_ns(run);
  for (const Rank rank : RankSet::all(3))
    ask(run, rank, "step", kStart - kMs,
        rank == Rank{1} ? std::optional(end - 10 * kMs) : std::nullopt);
  hang(run, false);
  std::erase_if(run.stacks, [](const StackSample& stack) {
    return stack.rank == Rank{1};
  });  // It reads requests.
  EXPECT_TRUE(certain_deadlock(run).has_value());
}

TEST_F(Trap, AnElasticLauncherMayStartTheRankAgain) {
  lockstep::Run run =
      make_run({{all_reduce("dp", 8).pending()}, {}, {all_reduce("dp", 8).pending()}});
  ends_with_signal(run, Rank{1}, 9, kStart + kMs);
  hang(run, false);
  ProcessEnd end;
  end.at_ns = kStart + kMs;
  end.role = Role::kRank;
  end.rank = Rank{1};
  end.pid = 1001;
  end.signal = 9;
  run.ends.push_back(end);
  ASSERT_TRUE(certain_deadlock(run).has_value());
  lockstep::Run restarted = run;
  restarted.starts.push_back({0, kStart + 2 * kMs, Role::kRank, Rank{1}, 5001});
  history::settle_places(restarted);
  EXPECT_FALSE(certain_deadlock(restarted).has_value());
  run.starts.push_back(
      {0, kStart / 8, Role::kOther, std::nullopt, 900});  // A launcher of the user's own.
  EXPECT_FALSE(certain_deadlock(run).has_value());
}

TEST_F(Trap, OurOwnSignalsMakeNobodyGone) {
  lockstep::Run run =
      make_run({{all_reduce("dp", 8).pending()}, {}, {all_reduce("dp", 8).pending()}});
  ends_with_signal(run, Rank{1}, 9, kStart + kMs);
  run.ends[1].our_signal = 9;
  run.acted.push_back({0, kStart + kMs / 2, "KILL", Rank{1}, 1001, "interrupted"});
  hang(run);
  EXPECT_TRUE(checkers::Deadlock().check(run).findings.empty());
}

}  // namespace
}  // namespace lockstep::testing
