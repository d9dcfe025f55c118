// Goal: who ran out of work in the first or second round of a loop is named though nothing repeats
// yet, where the lines show that the others came round; and a round without its calls is told from
// one that was never made, where the loop's variable was seen.
#include <gtest/gtest.h>

#include "checkers/judge.h"
#include "checkers/order/loop_exit.h"
#include "tests/support/typed_run.h"

namespace lockstep::testing {
namespace {

const Call kBroadcast = broadcast("dp", 4).at("t.py", 20).in_for(18, "batch");
const Call kBackward = all_reduce("dp", 8).at("t.py", 21).in_for(18, "batch");
const Call kBarrier = barrier("dp").at("t.py", 30);
const Row kStart{broadcast("dp", 5).at("t.py", 12)};

lockstep::Run hanging(const std::vector<Row>& rows) {
  lockstep::Run run = make_run(rows);
  hang(run);
  return run;
}

Finding only_finding(const lockstep::Run& run) {
  const checkers::Judgement judged = checkers::judge(run, checkers::all_checkers());
  EXPECT_EQ(judged.findings.size(), 1U);
  return judged.findings.empty() ? Finding{} : judged.findings.front();
}

Verdict checked(const lockstep::Run& run) { return checkers::LoopExit().check(run); }

TEST(FirstRounds, WhoRanOutAfterTheFirstOneIsNamed) {
  for (const std::size_t world : {2U, 3U, 4U}) {
    std::vector<Row> rows(world, kStart + Row{kBackward, kBroadcast.pending()});
    rows[1] = kStart + Row{kBackward, kBarrier.pending()};
    const Finding finding = only_finding(hanging(rows));
    EXPECT_EQ(finding.code, Code::kUnevenBatches);
    EXPECT_EQ(finding.culprits, RankSet{Rank{1}});
    EXPECT_EQ(finding.sites.front().line, 30);
    EXPECT_NE(finding.headline.find("left the loop at t.py:18 after 1 round; "), std::string::npos);
  }
}

TEST(FirstRounds, TheSecondMayBeginOtherwiseThanTheFirst) {
  const Row two = kStart + Row{kBackward, kBroadcast, kBackward};
  const Finding finding =
      only_finding(hanging({two + Row{kBarrier.pending()}, two + Row{kBackward.pending()}}));
  EXPECT_EQ(finding.code, Code::kUnevenBatches);
  EXPECT_EQ(finding.culprits, RankSet{Rank{0}});
  EXPECT_EQ(finding.headline,
            "rank 0 left the loop at t.py:18 after 2 rounds; rank 1 went on with round 3");
}

TEST(FirstRounds, WhoRanOutMayHaveEndedWell) {
  lockstep::Run run =
      make_run({kStart + Row{kBackward, kBroadcast.failed()}, kStart + Row{kBackward}});
  ends_with_status(run, Rank{1}, 0, stall_ns(run));
  ends_with_status(run, Rank{0}, 1, stall_ns(run) + kMs);
  const Finding finding = only_finding(run);
  EXPECT_EQ(finding.code, Code::kUnevenBatches);
  EXPECT_EQ(finding.culprits, RankSet{Rank{1}});
  EXPECT_EQ(finding.headline,
            "rank 1 issued the calls of 1 round of the loop at t.py:18 and ended; rank 0 went on "
            "with round 2");
}

TEST(FirstRounds, WhereOneLineIssuesSeveralCallsTheRoundsAreNotCounted) {
  const Row two = kStart + Row{kBackward, kBroadcast, kBroadcast, kBackward};
  const Finding finding =
      only_finding(hanging({two + Row{kBarrier.pending()}, two + Row{kBackward.pending()}}));
  EXPECT_EQ(finding.code, Code::kUnevenBatches);
  EXPECT_EQ(finding.culprits, RankSet{Rank{0}});
  EXPECT_EQ(finding.headline, "rank 0 left the loop at t.py:18; rank 1 went on with another round");
}

TEST(FirstRounds, ACallFurtherOnInTheBodyIsOfTheSameRound) {  // Under `if rank == 0`.
  Call further = kBroadcast.pending();
  further.line = 24;
  const lockstep::Run run =
      hanging({kStart + Row{kBackward, further}, kStart + Row{kBackward, kBarrier.pending()}});
  EXPECT_TRUE(checked(run).findings.empty());
  EXPECT_TRUE(only_finding(run).culprits.empty());
}

TEST(FirstRounds, ALoopThatCanBeLeftMayHaveBeen) {  // for attempt in range(3): ... break
  const Call tried = all_reduce("dp", 8).at("t.py", 21).in_loop(18, "attempt");
  const lockstep::Run run = hanging({Row{tried, tried.pending()}, Row{tried, kBarrier.pending()}});
  EXPECT_TRUE(checked(run).findings.empty());
  EXPECT_TRUE(only_finding(run).culprits.empty());
}

TEST(FirstRounds, InAnOuterLoopItIsNotKnownWhichCameRound) {
  const Call inner = all_reduce("dp", 8).at("t.py", 21).in_for(10, "epoch").in_for(18, "batch");
  const Call behind = barrier("dp").at("t.py", 27).in_for(10, "epoch");
  const lockstep::Run run = hanging({Row{inner, inner.pending()}, Row{inner, behind.pending()}});
  EXPECT_TRUE(checked(run).findings.empty());
}

TEST(FirstRounds, WithoutLinesNobodyIsNamed) {
  const lockstep::Run run = hanging({Row{all_reduce("dp", 8), broadcast("dp", 4).pending()},
                                     Row{all_reduce("dp", 8), barrier("dp").pending()}});
  EXPECT_TRUE(checked(run).findings.empty());
}

// The next call behind the loop looks like that of the others' next round, and is taken for it.
TEST(FirstRounds, WhoRanOutMayHaveMetTheOthersFirst) {
  const Call step = all_reduce("dp", 8).at("t.py", 21).in_for(18, "i");
  const Call metric = all_reduce("dp", 8).at("t.py", 30);
  for (const std::size_t world : {2U, 3U}) {
    std::vector<Row> rows(world, times(4, {step}) + Row{metric, metric.failed()});
    rows[1] = times(3, {step}) + Row{metric, metric};
    lockstep::Run run = make_run(rows);
    ends_with_status(run, Rank{1}, 0, stall_ns(run));
    ends_with_status(run, Rank{0}, 1, stall_ns(run) + kMs);
    const Finding finding = only_finding(run);
    EXPECT_EQ(finding.code, Code::kUnevenBatches);
    EXPECT_EQ(finding.culprits, RankSet{Rank{1}});
    EXPECT_EQ(finding.headline.substr(0, 52),
              "rank 1 left the loop at t.py:21 after 3 rounds; rank");
  }
}

// ---- A round without its calls.

const Call kStep = all_reduce("dp", 8).at("t.py", 21).in_for(18, "i");

/// Rank 0 issued fewer calls; the variable had these values where the ranks were seen at last.
lockstep::Run seen_with(std::int64_t zero, std::int64_t one) {
  lockstep::Run run = hanging(
      {times(7, {kStep}) + Row{kBarrier.pending()}, times(7, {kStep}) + Row{kStep.pending()}});
  for (const Process& process : run.processes) {
    StackSample stack = stack_of(run, *process.rank, {"c10d::Work::wait"});
    stack.frames.push_back(process.sites[process.collectives.back().site].frames.front());
    stack.variables.push_back({1, "i", process.rank->value == 0 ? zero : one});
    run.stacks.push_back(std::move(stack));
  }
  return run;
}

TEST(LeftOutInARound, IsToldFromARoundThatWasNeverMade) {
  const Finding left_out = only_finding(seen_with(7, 7));
  EXPECT_EQ(left_out.code, Code::kMissingCall);
  EXPECT_EQ(left_out.culprits, RankSet{Rank{0}});
  EXPECT_NE(left_out.headline.find("left out all_reduce in one"), std::string::npos);
  EXPECT_EQ(left_out.cause.find("a round of its own without these calls: no_sync, "), 0U);
  const Finding fewer = only_finding(seen_with(6, 7));
  EXPECT_EQ(fewer.code, Code::kUnevenBatches);
  EXPECT_EQ(fewer.culprits, RankSet{Rank{0}});
  EXPECT_EQ(fewer.cause.find("it made fewer rounds with these calls than the others: "), 0U);
}

TEST(LeftOutInARound, AVariableThatDoesNotCountTheRoundsTellsNothing) {
  EXPECT_EQ(only_finding(seen_with(70, 70)).code, Code::kUnevenBatches);
}

TEST(LeftOutInARound, OfARankThatHasEndedOnlyItsCallsAreCounted) {
  lockstep::Run run = make_run({times(7, {kStep}), times(7, {kStep}) + Row{kStep.failed()}});
  ends_with_status(run, Rank{0}, 0, stall_ns(run));
  ends_with_status(run, Rank{1}, 1, stall_ns(run) + kMs);
  const Finding finding = only_finding(run);
  EXPECT_EQ(finding.code, Code::kUnevenBatches);
  EXPECT_EQ(finding.culprits, RankSet{Rank{0}});
  EXPECT_EQ(finding.headline,
            "rank 0 issued the calls of 7 rounds of the loop at t.py:21 and ended; rank 1 went on "
            "with round 8");
}

}  // namespace
}  // namespace lockstep::testing
