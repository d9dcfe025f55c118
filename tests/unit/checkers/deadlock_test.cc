// Goal: a deadlock is proven or not claimed. The shapes that must be found; traps are in
// deadlock_traps_test.cc.
#include "checkers/hang/deadlock.h"

#include <gtest/gtest.h>

#include "tests/support/typed_run.h"

namespace lockstep::testing {
namespace {

using checkers::certain_deadlock;
using checkers::Deadlock;

Finding proven(const lockstep::Run& run) {
  const Verdict verdict = Deadlock().check(run);
  EXPECT_EQ(verdict.outcome, Outcome::kFail) << verdict.reason;
  EXPECT_EQ(verdict.findings.size(), 1U);
  return verdict.findings.empty() ? Finding{} : verdict.findings.front();
}

/// Ranks of `idle` have answered their last request; the others have not.
void in_conversation(lockstep::Run& run, const RankSet& idle) {
  const std::uint64_t end = stall_ns(run);
  for (const Rank rank : RankSet::all(run.plan.world_size))
    ask(run, rank, "step", kStart - kMs,
        idle.contains(rank) ? std::optional(end - 10 * kMs) : std::nullopt);
}

lockstep::Run skipped_by_an_idle_host() {
  const Row step = times(3, {all_reduce("dp", 8).at("ddp.cc", 30)});
  lockstep::Run run = make_run({step + Row{all_reduce("dp", 8).at("ddp.cc", 30).pending()}, step,
                                step + Row{all_reduce("dp", 8).at("ddp.cc", 30).pending()}});
  in_conversation(run, {Rank{1}});
  return run;
}

TEST(Deadlock, PassesARunThatWentToItsEnd) {
  const Row row = times(3, {all_reduce("dp", 8)});
  EXPECT_EQ(Deadlock().check(make_run({row, row})).outcome, Outcome::kPass);
}

TEST(Deadlock, CannotDecideWithoutHistoryOrJournal) {
  lockstep::Run run = make_run({{all_reduce("dp", 8)}, {all_reduce("dp", 8)}});
  run.journal_complete = false;
  EXPECT_EQ(Deadlock().check(run).outcome, Outcome::kUndecided);
  run.processes.clear();
  EXPECT_EQ(Deadlock().check(run).outcome, Outcome::kUndecided);
}

TEST(Deadlock, AnIdleHostThatLeftOutACallIsAbsentForEver) {
  lockstep::Run live = skipped_by_an_idle_host();
  hang(live, false);
  ASSERT_TRUE(certain_deadlock(live).has_value());
  lockstep::Run run = skipped_by_an_idle_host();
  hang(run);
  const Finding finding = proven(run);
  EXPECT_EQ(finding.code, Code::kAbsentRank);
  EXPECT_EQ(finding.headline, *certain_deadlock(live));  // Live and closed say the same.
  EXPECT_EQ(finding.culprits, RankSet{Rank{1}});
  EXPECT_EQ(finding.affected, (RankSet{Rank{0}, Rank{2}}));
  EXPECT_EQ(finding.seq, 3U);
  EXPECT_EQ(finding.headline, "rank 1 has not entered all_reduce dp#3; ranks 0,2 wait in it");
  ASSERT_EQ(finding.sites.size(), 2U);
  EXPECT_EQ(finding.sites[0].role, "culprit");
}

// Lockstep waits for the reference, or for nobody that was only told that its batches are over.
TEST(Deadlock, AnIdleHostMayBeAskedOn) {
  lockstep::Run run = skipped_by_an_idle_host();
  hang(run, false);
  run.requests.push_back({.at_ns = kStart, .role = Role::kReference, .message = "reference"});
  EXPECT_FALSE(certain_deadlock(run).has_value());
  run.requests.back().answered_ns = stall_ns(run) - 10 * kMs;
  EXPECT_TRUE(certain_deadlock(run).has_value());
  for (Request& request : run.requests) {
    if (!request.answered_ns)
      request.message = "exhausted";
  }
  EXPECT_FALSE(certain_deadlock(run).has_value());
  for (Request& request : run.requests)
    request.message = "exhausted";
  EXPECT_TRUE(certain_deadlock(run).has_value());
}

TEST(Deadlock, OnTwoRanksTheAbsentOneIsAFactAndNotACulprit) {
  lockstep::Run run =
      make_run({{all_reduce("dp", 8), all_reduce("dp", 8).pending()}, {all_reduce("dp", 8)}});
  in_conversation(run, {Rank{1}});
  hang(run);
  const Finding finding = proven(run);
  EXPECT_EQ(finding.code, Code::kAbsentRank);
  EXPECT_TRUE(finding.culprits.empty());
}

TEST(Deadlock, ADeadMemberIsCertain) {
  lockstep::Run run =
      make_run({{all_reduce("dp", 8).pending()}, {}, {all_reduce("dp", 8).pending()}});
  ends_with_signal(run, Rank{1}, 9, kStart + kMs);
  hang(run);
  const Finding finding = proven(run);
  EXPECT_EQ(finding.code, Code::kAbsentRank);
  EXPECT_EQ(finding.culprits, RankSet{Rank{1}});
  EXPECT_EQ(finding.confidence, Confidence::kCertain);
}

// Seen with Gloo: one rank dies in an all-reduce, the second is told, the third waits for ever for
// the second.
lockstep::Run broken_all_reduce() {
  const Row before = times(3, {all_reduce("dp", 8)});
  lockstep::Run run = make_run({before + Row{all_reduce("dp", 8).pending()},
                                before + Row{all_reduce("dp", 8).failed()},
                                before + Row{all_reduce("dp", 8).pending()}});
  in_conversation(run, {Rank{1}});
  return run;
}

TEST(Deadlock, ACallThatBrokeWhenAMemberDiedIsOverForTheOthersToo) {
  lockstep::Run run = broken_all_reduce();
  ends_with_signal(run, Rank{2}, 9, stall_ns(run) - 50 * kMs);
  hang(run);
  const Finding finding = proven(run);
  EXPECT_EQ(finding.code, Code::kEveryoneInside);
  EXPECT_EQ(finding.culprits, RankSet{Rank{2}});
  EXPECT_EQ(finding.confidence, Confidence::kCertain);
}

TEST(Deadlock, ACallThatFailedOnALivingRankProvesNothing) {
  lockstep::Run run =
      broken_all_reduce();  // Its own limit may have ended it, and will end the others'.
  hang(run, false);
  EXPECT_FALSE(certain_deadlock(run).has_value());
}

TEST(Deadlock, TwoGroupsInOppositeOrderAreACycle) {
  lockstep::Run run = make_run({
      {all_reduce("a", 8).pending()},
      {all_reduce("b", 8).pending()},
  });
  hang(run);
  const Finding finding = proven(run);
  EXPECT_EQ(finding.code, Code::kWaitCycle);
  EXPECT_TRUE(finding.culprits.empty());
}

TEST(Deadlock, TwoGroupsInOppositeOrderAllIssuedAreNoProof) {
  // Both are in both: only the transport knows. Nobody owes anything.
  lockstep::Run run = make_run({
      {all_reduce("a", 8).async().pending(), all_reduce("b", 8).async().pending()},
      {all_reduce("b", 8).async().pending(), all_reduce("a", 8).async().pending()},
  });
  hang(run);
  EXPECT_EQ(Deadlock().check(run).outcome, Outcome::kUndecided);
}

TEST(Deadlock, ReceiveAgainstReceiveIsACycle) {
  lockstep::Run run = make_run({{recv("dp", 1, 8)}, {recv("dp", 0, 8)}});
  hang(run);
  EXPECT_EQ(proven(run).code, Code::kWaitCycle);
}

TEST(Deadlock, ARankThatReceivesFromItselfIsACycleOfOne) {
  lockstep::Run run = make_run({{recv("dp", 0, 8)}, {}});
  hang(run);
  const Finding finding = proven(run);
  EXPECT_EQ(finding.code, Code::kWaitCycle);
  EXPECT_EQ(finding.headline, "rank 0 waits for itself in recv dp#0 from rank 0");
}

TEST(Deadlock, SendAgainstSendIsACycle) {
  lockstep::Run run = make_run({{send("dp", 1, 8)}, {send("dp", 0, 8)}});
  hang(run);
  EXPECT_EQ(proven(run).code, Code::kWaitCycle);
}

TEST(Deadlock, ABlockingSendOfPythonWaitsAsLongAsItsGroup) {
  const auto sending = [](const char* function) {
    lockstep::Run run = make_run({{send("dp", 1, 8)}, {send("dp", 0, 8)}});
    for (Process& process : run.processes) {
      process.sites.push_back({{Frame{"/app/t.py", 3, "t.py", 12, "exchange", {}}}});
      process.collectives[0].site = 1;
    }
    hang(run);
    for (StackSample& stack : run.stacks) {
      stack = stack_of(run, *stack.rank,
                       {"pthread_cond_timedwait", "c10d::ProcessGroupGloo::SendWork::wait"});
      stack.frames.push_back(
          {"/py/site-packages/torch/distributed/distributed_c10d.py", 7, "", 9, function, {}});
      stack.frames.push_back({"/app/t.py", 3, "t.py", 12, "exchange", {}});
    }
    return run;
  };
  const Verdict verdict = checkers::Deadlock().check(sending("send"));
  ASSERT_EQ(verdict.findings.size(), 1U);
  EXPECT_EQ(verdict.findings[0].code, Code::kWaitCycle);
  EXPECT_TRUE(verdict.findings[0].culprits.empty());
  EXPECT_EQ(verdict.findings[0].sites.front().line, 12);
  // What waits for it may have been given a limit.
  EXPECT_TRUE(checkers::Deadlock().check(sending("isend")).findings.empty());
}

/// The first ranks make a group in Python, asleep in the store; the others are in an all-reduce.
lockstep::Run making_a_group(int makers) {
  std::vector<Row> rows;
  for (int rank = 0; rank < 3; ++rank)
    rows.push_back(rank < makers ? Row{all_reduce("dp", 8)}
                                 : Row{all_reduce("dp", 8), all_reduce("dp", 8).pending()});
  lockstep::Run run = make_run(rows);
  hang(run, false);
  for (int rank = 0; rank < makers; ++rank) {
    StackSample stack = stack_of(run, Rank{rank}, {"poll", "c10d::TCPStore::wait"});
    std::vector<Frame>& frames = stack.frames;
    frames.push_back(
        {"/py/site-packages/torch/distributed/distributed_c10d.py", 7, "", 9, "new_group", {}});
    frames.push_back({"/app/t.py", 3, "t.py", 12, "main", {}});
    for (const std::uint64_t at_ns : {stack.at_ns, stack.at_ns + 3'000 * kMs}) {
      stack.at_ns = at_ns;
      run.stacks.push_back(stack);
    }
  }
  return run;
}

TEST(Deadlock, WhoMakesAGroupAloneWaitsForThoseThatWaitForIt) {
  const Finding finding = proven(making_a_group(1));
  EXPECT_EQ(finding.code, Code::kAbsentRank);
  EXPECT_TRUE(finding.culprits.empty()) << "the one that makes it, or one that does not";
  EXPECT_EQ(finding.sites.front().line, 12);
  EXPECT_NE(finding.evidence.front().text.find("in new_group at t.py:12"), std::string::npos);
}

TEST(Deadlock, AGroupThatSomebodyMayStillMakeIsNoProof) {
  for (const int makers : {2, 3})
    EXPECT_TRUE(Deadlock().check(making_a_group(makers)).findings.empty()) << "they meet";
  lockstep::Run run = making_a_group(1);
  for (StateSample& sample : run.states) {
    if (sample.rank == Rank{2})
      sample.threads.front().context_switches = sample.at_ns;
  }
  EXPECT_TRUE(Deadlock().check(run).findings.empty()) << "rank 2 moves";
  run = making_a_group(1);
  run.stacks.pop_back();
  EXPECT_TRUE(Deadlock().check(run).findings.empty()) << "the store may be slow";
  run = making_a_group(1);
  for (StackSample& stack : run.stacks)
    stack.frames.front().function = stack.frames[1].function = "getaddrinfo";
  EXPECT_TRUE(Deadlock().check(run).findings.empty()) << "it waits for something else";
}

TEST(Deadlock, AReceiveThatNobodySendsTo) {
  lockstep::Run run = make_run({{recv("dp", 1, 8)}, {}});
  in_conversation(run, {Rank{1}});
  hang(run);
  EXPECT_EQ(proven(run).code, Code::kP2pUnmatched);
}

TEST(Deadlock, AReceiveFromAnyoneNeedsEverySenderToBeLost) {
  lockstep::Run run = make_run({{recv_any("dp", 8)}, {recv("dp", 0, 8)}, {recv("dp", 1, 8)}});
  hang(run);
  EXPECT_EQ(proven(run).code, Code::kWaitCycle);
  lockstep::Run one_moves = run;
  for (StateSample& sample : one_moves.states) {
    if (sample.rank == Rank{2})
      thread_of(sample, 1002).context_switches += sample.at_ns / kMs;
  }
  EXPECT_EQ(Deadlock().check(one_moves).outcome, Outcome::kUndecided);
}

TEST(Deadlock, AnotherCallInThePlaceOfTheFirstIsOwedToo) {
  lockstep::Run run = make_run({{all_reduce("dp", 8).pending()},
                                {broadcast("dp", 8).pending()},
                                {all_reduce("dp", 8).pending()}});
  hang(run);
  EXPECT_EQ(proven(run).code, Code::kWaitCycle);
}

TEST(Deadlock, EveryoneInsideIsLikelyOnceALimitEndedTheRun) {
  lockstep::Run run = make_run({{all_reduce("dp", 8).pending()}, {all_reduce("dp", 8).pending()}});
  hang(run);
  EXPECT_EQ(Deadlock().check(run).outcome, Outcome::kUndecided);
  interrupt(run);
  const Finding finding = proven(run);
  EXPECT_EQ(finding.code, Code::kEveryoneInside);
  EXPECT_EQ(finding.confidence, Confidence::kLikely);
  run.plan.scenario = "gradient-equivalence";  // Our own limit on a slow machine proves nothing.
  EXPECT_EQ(Deadlock().check(run).outcome, Outcome::kUndecided);
}

TEST(Deadlock, AfterTenThousandCollectivesTheRingIsEnough) {
  const std::size_t count = 10'000;
  const Row row = times(count, {all_reduce("dp", 8)});
  lockstep::Run run = make_run(
      {row + Row{all_reduce("dp", 8).pending()}, row, row + Row{all_reduce("dp", 8).pending()}});
  for (Process& process : run.processes) {
    process.dropped = count - 2'000;
    process.collectives.erase(
        process.collectives.begin(),
        process.collectives.begin() + static_cast<std::ptrdiff_t>(process.dropped));
  }
  in_conversation(run, {Rank{1}});
  hang(run);
  for (StateSample& sample : run.states)
    sample.head = process_of(run, *sample.rank).collectives.back().record + 1;
  const Finding finding = proven(run);
  EXPECT_EQ(finding.seq, count);
  EXPECT_EQ(finding.culprits, RankSet{Rank{1}});
}

}  // namespace
}  // namespace lockstep::testing
