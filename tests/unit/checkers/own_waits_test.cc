// Goal: a process whose threads all wait for each other is stuck for ever, whatever other ranks do;
// and one in which anything might still wake a thread is not.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <functional>

#include "checkers/hang/deadlock.h"
#include "tests/support/typed_run.h"

namespace lockstep::testing {
namespace {

using checkers::certain_deadlock;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

/// Rank 1 waits for a queue of its own, as does its one other thread, 2001. Rank 0 waits for
/// rank 1.
struct OwnWait {
  lockstep::Run run =
      make_run({{all_reduce("dp", 8), all_reduce("dp", 8).pending()}, {all_reduce("dp", 8)}});
  OwnWait() {
    hang(run, false);
    each_sample([](StateSample& sample) {
      sample.caught_signals = 1U << (SIGINT - 1);
      sample.threads.push_back({2001, 'S', "futex_do_wait", 3, kMs});
      for (ThreadState& thread : sample.threads)
        thread.for_own_threads = thread.for_ever = true;
    });
    StackSample main = stack_of(run, Rank{1}, {"PyThread_acquire_lock_timed"});
    main.frames.push_back({"/py/queue.py", 7, "", 171, "Queue.get", {}});
    main.frames.push_back({"/app/t.py", 3, "t.py", 12, "main", {}});
    run.stacks.push_back(main);
    see({{"/torch/lib/libtorch_cpu.so", 16, "", 0, "worker", {}}});
  }
  void each_sample(const std::function<void(StateSample&)>& change) {
    for (StateSample& sample : run.states) {
      if (sample.rank == Rank{1})
        change(sample);
    }
  }
  void each_helper(const std::function<void(ThreadState&)>& change) {
    each_sample([&](StateSample& sample) { change(sample.threads.back()); });
  }
  /// The stack of 2001.
  void see(const std::vector<Frame>& frames) {
    StackSample stack = stack_of(run, Rank{1}, {});
    stack.tid = 2001;
    stack.frames = frames;
    run.stacks.push_back(stack);
  }
  [[nodiscard]] bool is_proven() const { return certain_deadlock(run).has_value(); }
};

TEST(OwnWaits, WhoWaitsForThreadsThatWaitForEverIsStuck) {
  const OwnWait own;
  const auto reason = certain_deadlock(own.run);
  ASSERT_TRUE(reason.has_value());
  EXPECT_EQ(*reason, "rank 1 has not entered all_reduce dp#1; rank 0 waits in it");
}

TEST(OwnWaits, WhatMayWakeAThreadIsNoProof) {
  const auto proven_with = [](const std::function<void(OwnWait&)>& change) {
    OwnWait own;
    change(own);
    return own.is_proven();
  };
  const std::vector<Frame> epoll{{"/torch/lib/libtorch_cpu.so", 16, "", 0, "", {}},
                                 {"/lib/libc.so.6", 16, "", 0, "", {}}};
  const auto serves = [](ThreadState& thread) {
    thread.wchan = "do_epoll_wait";
    thread.for_own_threads = thread.for_ever = false;
    thread.context_switches += thread.cpu_ns++;
  };
  EXPECT_TRUE(proven_with([&](OwnWait& own) {
    own.each_helper(serves);
    own.see(epoll);
  })) << "Gloo's own";
  EXPECT_FALSE(proven_with([&](OwnWait& own) {
    own.each_helper(serves);
    own.see({{"/app/libgrpc.so", 16, "", 0, "", {}}, epoll[0], epoll[1]});
  })) << "somebody else's";
  EXPECT_FALSE(proven_with([&](OwnWait& own) {
    own.see({{"/torch/lib/libc10.so", 16, "", 0, "c10::ThreadPool::main_loop(unsigned long)", {}}});
  })) << "functions that come by RPC";
  EXPECT_FALSE(proven_with([](OwnWait& own) {
    own.each_helper([](ThreadState& thread) { thread.for_ever = false; });
  })) << "it waits for a while";
  EXPECT_FALSE(proven_with([](OwnWait& own) {
    own.each_helper([](ThreadState& thread) { thread.for_own_threads = false; });
  })) << "another process may wake it";
  EXPECT_FALSE(proven_with([](OwnWait& own) { own.run.stacks.pop_back(); })) << "not looked into";
  EXPECT_FALSE(proven_with([](OwnWait& own) {
    own.each_sample([](StateSample& sample) { *sample.caught_signals |= 1U << (SIGALRM - 1); });
  })) << "a handler may put something into it";
  EXPECT_FALSE(proven_with([](OwnWait& own) {
    process_of(own.run, Rank{1}).collectives.front().completed_ns.reset();
    process_of(own.run, Rank{1}).collectives.front().async = true;
  })) << "the end of a collective may run a function";
}

TEST(OwnWaits, NobodyNeedsItAndItIsNoFinding) {
  OwnWait own;
  own.run.processes.front().collectives.back().completed_ns =
      own.run.processes.front().collectives.back().issued_ns + kMs;
  EXPECT_FALSE(own.is_proven());
}

TEST(OwnWaits, TheExceptionThatEndedItsThreadConvicts) {
  const auto finding_with = [](const std::string& outermost, bool may_be_woken = false) {
    OwnWait own;
    if (may_be_woken) {
      own.each_helper([](ThreadState& thread) {  // As one of CUDA's.
        thread.wchan = "do_sys_poll";
        thread.for_own_threads = thread.for_ever = false;
      });
      interrupt(own.run);
    }
    own.run.live = false;
    own.run.journal_complete = true;
    Raised raised{.at_ns = kStart,
                  .rank = Rank{1},
                  .pid = process_of(own.run, Rank{1}).pid,
                  .text = "ValueError: broken"};
    raised.raised_at.frames = {{"/app/t.py", 7, "/app/t.py", 7, "read", {}},
                               {"/py/threading.py", 9, "/py/threading.py", 9, outermost, {}}};
    own.run.raised.push_back(raised);
    const Verdict verdict = checkers::Deadlock().check(own.run);
    EXPECT_EQ(verdict.findings.size(), 1U);
    return verdict.findings.empty() ? Finding{} : verdict.findings.front();
  };
  const Finding ended = finding_with("_bootstrap_inner");
  EXPECT_EQ(ended.culprits, RankSet{Rank{1}});
  EXPECT_EQ(ended.confidence, Confidence::kCertain);
  EXPECT_EQ(ended.evidence.front().text,
            "a thread of rank 1 was ended by ValueError: broken at t.py:7");
  EXPECT_TRUE(finding_with("run").culprits.empty()) << "it may have been caught, and printed";
  const Finding told = finding_with("_bootstrap_inner", true);
  EXPECT_TRUE(told.culprits.empty()) << "it may have nothing to do with it";
  EXPECT_THAT(texts_of(told.evidence),
              ElementsAre(ended.evidence.front().text, HasSubstr("and thread 2001 may wake it")));
  EXPECT_THAT(texts_of(finding_with("run", true).evidence), SizeIs(1));
}

}  // namespace
}  // namespace lockstep::testing
