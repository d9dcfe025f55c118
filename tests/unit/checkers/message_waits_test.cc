// Goal: ranks that wait for messages of isend and irecv, several of them open at once, are stuck
// where none of these can come, and only there.
#include <gtest/gtest.h>

#include "checkers/hang/deadlock.h"
#include "tests/support/typed_run.h"

namespace lockstep::testing {
namespace {

using checkers::certain_deadlock;
constexpr std::int64_t kLimitMs = 60'000;

/// All ranks sleep in the wait for a message, as long as their group lets them.
void hang_in_messages(lockstep::Run& run,
                      const std::string& wait = "c10d::ProcessGroupGloo::RecvWork::wait") {
  hang(run, false);
  for (StackSample& stack : run.stacks)
    stack = stack_of(run, *stack.rank, {"pthread_cond_timedwait", wait});
  for (Process& process : run.processes) {
    for (Group& group : process.groups)
      group.timeout_ms = kLimitMs;
  }
  for (StateSample& sample : run.states) {
    for (ThreadState& thread : sample.threads) {
      thread.for_own_threads = true;
      thread.until_ns = stall_ns(run) - 5 * kMs + kLimitMs * kMs;
    }
  }
}

/// Two messages went to and fro; each waits for a third one, of which none was sent.
lockstep::Run both_wait() {
  lockstep::Run run = make_run({
      {send("dp", 1, 8).async(), recv("dp", 1, 8).async(), recv("dp", 1, 8).async()},
      {send("dp", 0, 8).async(), recv("dp", 0, 8).async(), recv("dp", 0, 8).async()},
  });
  hang_in_messages(run);
  return run;
}

TEST(MessageWaits, ThoseThatWaitForEachOtherAreStuck) {
  const auto reason = certain_deadlock(both_wait());
  ASSERT_TRUE(reason.has_value());
  EXPECT_NE(reason->find("wait for each other in a circle"), std::string::npos) << *reason;
  EXPECT_NE(reason->find("recv dp#1"), std::string::npos)
      << "the message that came is left out: " << *reason;
}

/// isend, recv, then wait() for what was sent: the last call is not the one that is waited for.
TEST(MessageWaits, WhatWasSentIsWaitedForAfterAnAnswerHasCome) {
  lockstep::Run run = make_run({
      {send("dp", 1, 8).async(), recv("dp", 1, 8)},
      {send("dp", 0, 8).async()},
  });
  hang_in_messages(run, "c10d::ProcessGroupGloo::SendWork::wait");
  EXPECT_FALSE(certain_deadlock(run).has_value()) << "what rank 1 sent has come";
  run = make_run({
      {send("dp", 1, 8).async(), recv("dp", 1, 8)},
      {send("dp", 0, 8).async(), send("dp", 0, 8).async()},
  });
  hang_in_messages(run, "c10d::ProcessGroupGloo::SendWork::wait");
  const auto reason = certain_deadlock(run);
  ASSERT_TRUE(reason.has_value());
  EXPECT_NE(reason->find("send dp#0"), std::string::npos) << *reason;
  EXPECT_EQ(reason->find("recv"), std::string::npos) << *reason;
}

TEST(MessageWaits, AMessageThatMayStillComeIsNoProof) {
  lockstep::Run run = make_run({
      {recv("dp", 1, 8).async(), recv("dp", 1, 8).async()},
      {send("dp", 0, 8).async(), recv("dp", 0, 8).async()},
  });
  hang_in_messages(run);
  ASSERT_TRUE(certain_deadlock(run).has_value());
  for (StateSample& sample : run.states) {  // Rank 1 still works at what it has sent.
    if (sample.rank == Rank{1})
      sample.threads.push_back({77, 'S', "", 0, sample.at_ns > stall_ns(run) ? 20 * kMs : 0});
  }
  EXPECT_FALSE(certain_deadlock(run).has_value());
}

TEST(MessageWaits, AllThatWasWaitedForHasCome) {
  lockstep::Run run = make_run({{send("dp", 1, 8).async()}, {recv("dp", 0, 8).async()}});
  hang_in_messages(run);
  EXPECT_FALSE(certain_deadlock(run).has_value());
}

TEST(MessageWaits, OneOfSeveralMayCome) {  // Rank 2 computes, and may send to rank 0.
  lockstep::Run run = make_run({
      {recv("dp", 1, 8).async(), recv("dp", 2, 8).async()},
      {recv("dp", 0, 8).async()},
      {},
  });
  hang_in_messages(run);
  for (StateSample& sample : run.states) {
    if (sample.rank == Rank{2})
      sample.threads.front().cpu_ns = sample.at_ns;
  }
  EXPECT_FALSE(certain_deadlock(run).has_value());
}

TEST(MessageWaits, WhoMayHaveTakenAMessageFromAnyoneIsNotKnown) {
  lockstep::Run run = make_run({
      {recv_any("dp", 8).async(), recv("dp", 1, 8).async()},
      {send("dp", 0, 8).async(), recv("dp", 0, 8).async()},
  });
  hang_in_messages(run);
  EXPECT_FALSE(certain_deadlock(run).has_value());
}

TEST(MessageWaits, ACallThatIsMadeOfMessagesIsWaitedForAsAWhole) {
  lockstep::Run run = make_run({{barrier("a").inside()}, {barrier("b").inside()}});
  hang_in_messages(run);
  EXPECT_TRUE(certain_deadlock(run).has_value());
}

class Limit : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(certain_deadlock(run_).has_value()); }
  void expect_no_proof() const { EXPECT_FALSE(certain_deadlock(run_).has_value()); }
  void each_thread(void (*change)(ThreadState&)) {
    for (StateSample& sample : run_.states) {
      for (ThreadState& thread : sample.threads)
        change(thread);
    }
  }
  lockstep::Run run_ = both_wait();
};

TEST_F(Limit, OfTheCaller) {  // work.wait(timedelta(seconds=50)), caught.
  each_thread([](ThreadState& thread) { *thread.until_ns -= 10'000 * kMs; });
  expect_no_proof();
}

TEST_F(Limit, OfTheCallerLongerThanThatOfTheGroup) {
  each_thread([](ThreadState& thread) { *thread.until_ns += 10'000 * kMs; });
  expect_no_proof();
}

TEST_F(Limit, NotToldByTheKernel) {
  each_thread([](ThreadState& thread) { thread.until_ns.reset(); });
  expect_no_proof();
}

TEST_F(Limit, OfTheGroupNotKnown) {
  for (Process& process : run_.processes)
    process.groups[0].timeout_ms.reset();
  expect_no_proof();
}

TEST(MessageWaits, AnAsynchronousCollectiveIsWaitedForBesideMessagesThatCame) {
  lockstep::Run run = make_run({
      {send("dp", 1, 8).async(), all_reduce("a", 8).async().pending()},
      {recv("dp", 0, 8).async(), all_reduce("b", 8).async().pending()},
  });
  hang(run, false);
  EXPECT_TRUE(certain_deadlock(run).has_value());
}

}  // namespace
}  // namespace lockstep::testing
