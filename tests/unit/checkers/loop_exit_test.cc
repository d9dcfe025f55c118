// Goal: who left a loop is named where the lines of the calls show it, after whole rounds (LS305)
// or from inside the body (LS306), whether the rank then exits or waits elsewhere; and nothing is
// said of a rank that may still be in the loop.
#include "checkers/order/loop_exit.h"

#include <gtest/gtest.h>

#include "checkers/judge.h"
#include "harness/history/format.h"
#include "harness/model/ending.h"
#include "tests/support/typed_run.h"

namespace lockstep::testing {
namespace {

const Call kBackward = all_reduce("dp", 8).at("t.py", 21).in_loop(18);
const Call kLog = all_reduce("dp", 1).at("t.py", 25).in_loop(18);
const Call kBarrier = barrier("dp").at("t.py", 30);
const Row kStart2{broadcast("dp", 4).at("t.py", 12), broadcast("dp", 5).at("t.py", 12)};
const Row kRound{kBackward, kLog};

Row rounds(std::size_t count, const Row& more = {}) {
  return kStart2 + times(count, kRound) + more;
}

lockstep::Run hanging(const std::vector<Row>& rows) {
  lockstep::Run run = make_run(rows);
  hang(run);
  return run;
}

/// Rank 1 exits with status 0, and the others lose the call they wait in.
lockstep::Run exiting(const std::vector<Row>& rows) {
  lockstep::Run run = make_run(rows);
  ends_with_status(run, Rank{1}, 0, stall_ns(run));
  for (std::int32_t rank = 0; rank < run.plan.world_size; ++rank) {
    if (rank != 1)
      ends_with_status(run, Rank{rank}, 1, stall_ns(run) + (1 + static_cast<unsigned>(rank)) * kMs);
  }
  return run;
}

Finding only_finding(const lockstep::Run& run) {
  const checkers::Judgement judged = checkers::judge(run, checkers::all_checkers());
  EXPECT_EQ(judged.findings.size(), 1U);
  return judged.findings.empty() ? Finding{} : judged.findings.front();
}

Verdict checked(const lockstep::Run& run) { return checkers::LoopExit().check(run); }

TEST(LoopExit, TheRankThatRanOutAndWaitsBehindTheLoopIsNamed) {
  const Finding finding =
      only_finding(hanging({rounds(3, {kBackward.pending()}), rounds(3, {kBarrier.pending()})}));
  EXPECT_EQ(finding.code, Code::kUnevenBatches);
  EXPECT_EQ(finding.culprits, RankSet{Rank{1}});
  EXPECT_EQ(finding.affected, RankSet{Rank{0}});
  EXPECT_EQ(finding.confidence, Confidence::kCertain);
  EXPECT_EQ(finding.headline,
            "rank 1 left the loop at t.py:21 after 3 rounds; rank 0 went on with round 4");
  EXPECT_EQ(finding.also, (std::vector<Code>{Code::kDifferentOp, Code::kWaitCycle}));
  ASSERT_EQ(finding.sites.size(), 2U);
  EXPECT_EQ(finding.sites[0].line, 30);
  EXPECT_EQ(finding.sites[0].role, "culprit");
  EXPECT_EQ(finding.sites[1].line, 21);
}

TEST(LoopExit, TheRanksMayHaveComeToTheLoopByDifferentWays) {  // One of them started the others.
  lockstep::Run run = hanging({rounds(3, {kBackward.pending()}), rounds(3, {kBarrier.pending()})});
  for (Process& process : run.processes) {
    for (CallSite& site : process.sites) {
      if (!site.frames.empty())
        site.frames.push_back({"t.py", process.rank->value == 0 ? 40U : 44U, "t.py", 40, "m", {}});
    }
  }
  const Finding finding = only_finding(run);
  EXPECT_EQ(finding.code, Code::kUnevenBatches);
  EXPECT_EQ(finding.headline,
            "rank 1 left the loop at t.py:21 after 3 rounds; rank 0 went on with round 4");
}

TEST(LoopExit, TheRankThatRanOutAndExitsIsNamed) {
  const Finding finding = only_finding(
      exiting({rounds(3, {kBackward.failed()}), rounds(3), rounds(3, {kBackward.failed()})}));
  EXPECT_EQ(finding.code, Code::kUnevenBatches);
  EXPECT_EQ(finding.also, std::vector<Code>{Code::kLeftEarly});
  EXPECT_EQ(finding.culprits, RankSet{Rank{1}});
  EXPECT_EQ(finding.affected, (RankSet{Rank{0}, Rank{2}}));
  EXPECT_EQ(finding.sites.front().line, 25) << "its last call";
}

TEST(LoopExit, WhoRanOutMayEndInPyTorchsAbortOnItsWayOut) {
  lockstep::Run run = exiting({rounds(3, {kBackward.failed()}), rounds(3)});
  ends_with_signal(run, Rank{1}, 6, stall_ns(run));
  EXPECT_EQ(only_finding(run).code, Code::kRankDied) << "any abort";
  run.raised.push_back({.at_ns = stall_ns(run),
                        .rank = Rank{1},
                        .pid = process_of(run, Rank{1}).pid,
                        .text = std::string(kTerminated)});
  const Finding finding = only_finding(run);
  EXPECT_EQ(finding.code, Code::kUnevenBatches);
  EXPECT_EQ(finding.also, (std::vector<Code>{Code::kLeftEarly, Code::kRankDied}));
  EXPECT_EQ(finding.culprits, RankSet{Rank{1}});
}

TEST(LoopExit, LeavingFromInsideTheBodyIsAnotherCode) {
  const Row inside = rounds(3, {kBackward});
  for (const lockstep::Run& run :
       {hanging({inside + Row{kLog.pending()}, inside + Row{kBarrier.pending()}}),
        exiting({inside + Row{kLog.failed()}, inside})}) {
    const Finding finding = only_finding(run);
    EXPECT_EQ(finding.code, Code::kLeftLoop);
    EXPECT_EQ(finding.culprits, RankSet{Rank{1}});
    EXPECT_EQ(finding.confidence, Confidence::kLikely);
    EXPECT_EQ(finding.cause, "a condition that holds on this rank only ended its loop");
    EXPECT_EQ(finding.sites.back().line, 25) << "the call that it left out";
  }
}

TEST(LoopExit, WhereTheBodyHasOneCallItMayBeEither) {
  const Row before = kStart2 + times(3, {kBackward});
  const Finding finding =
      only_finding(hanging({before + Row{kBackward.pending()}, before + Row{kBarrier.pending()}}));
  EXPECT_EQ(finding.code, Code::kUnevenBatches);
  EXPECT_EQ(finding.also.front(), Code::kLeftLoop);
}

TEST(LoopExit, SeveralMayHaveRunOut) {
  const Row left = rounds(4, {kBarrier.pending()}), stays = rounds(4, {kBackward.pending()});
  const Finding finding = only_finding(hanging({left, stays, left, stays}));
  EXPECT_EQ(finding.code, Code::kUnevenBatches);
  EXPECT_EQ(finding.culprits, (RankSet{Rank{0}, Rank{2}}));
}

TEST(LoopExit, WhereMostHaveLeftNobodyIsNamed) {
  const Row left = rounds(4, {kBarrier.pending()});
  const Finding finding = only_finding(hanging({left, rounds(4, {kBackward.pending()}), left}));
  EXPECT_EQ(finding.code, Code::kUnevenBatches);
  EXPECT_TRUE(finding.culprits.empty());
  EXPECT_EQ(finding.affected, RankSet::all(3));
  EXPECT_EQ(finding.confidence, Confidence::kUnknown);
  EXPECT_EQ(finding.cause.find("that most ranks left it does not tell whether"), 0U);
  EXPECT_EQ(finding.headline,
            "ranks 0,2 left the loop at t.py:21 after 4 rounds; rank 1 went on with round 5");
}

TEST(LoopExit, ARankMayGoOnInAnotherGroup) {
  const Finding finding = only_finding(hanging(
      {rounds(3, {kBackward.pending()}), rounds(3, {barrier("tp").at("t.py", 30).pending()})}));
  EXPECT_EQ(finding.code, Code::kUnevenBatches);
  EXPECT_EQ(finding.culprits, RankSet{Rank{1}});
}

TEST(LoopExit, AMessageAtTheEndOfTheBodyIsOfTheRoundBefore) {
  const Row round = kRound + Row{send("dp", 0, 1).at("t.py", 27).in_loop(18)};
  const Row zero = kStart2 + times(3, kRound);
  const Finding finding = only_finding(hanging(
      {zero + Row{kBackward.pending()}, kStart2 + times(3, round) + Row{kBarrier.pending()}}));
  EXPECT_EQ(finding.code, Code::kUnevenBatches);
  EXPECT_EQ(finding.culprits, RankSet{Rank{1}});
}

TEST(LoopExit, AnAbortOfAVictimIsItsConsequence) {
  lockstep::Run run = make_run({rounds(3, {kBackward.pending()}),
                                rounds(3, {all_reduce("dp", 1).at("t.py", 30).pending()})});
  ends_with_signal(run, Rank{1}, 6, stall_ns(run));
  ends_with_status(run, Rank{0}, 1, stall_ns(run) + kMs);
  EXPECT_EQ(only_finding(run).code, Code::kUnevenBatches);
  ends_with_signal(run, Rank{0}, 6, stall_ns(run));
  ends_with_status(run, Rank{1}, 1, stall_ns(run) + kMs);
  EXPECT_EQ(only_finding(run).code, Code::kUnevenBatches);
  EXPECT_EQ(only_finding(run).culprits, RankSet{Rank{1}});
}

// ---- Silent.

TEST(LoopExit, HealthyEndsAreSilent) {
  EXPECT_EQ(checked(make_run({rounds(5), rounds(5)})).outcome, Outcome::kPass);
  const Row one_round{kBackward, kLog};
  EXPECT_EQ(checked(make_run({one_round, one_round})).outcome, Outcome::kPass);
  // A root that broadcasts once more, to nobody, and ends well.
  const lockstep::Run unneeded =
      make_run({times(4, {broadcast("dp", 8).at("t.py", 21).in_loop(18)}),
                times(3, {broadcast("dp", 8).at("t.py", 21).in_loop(18)})});
  EXPECT_EQ(checked(unneeded).outcome, Outcome::kPass);
}

TEST(LoopExit, ACallInsideTheLoopIsNoExit) {  // A checkpoint under `if rank == 0`.
  const Call gather = all_gather("dp", 1, 2).at("t.py", 27).in_loop(18).pending();
  const lockstep::Run run = hanging({rounds(3, {gather}), rounds(3, {kBackward.pending()})});
  EXPECT_TRUE(checked(run).findings.empty());
  EXPECT_TRUE(only_finding(run).culprits.empty());
}

// The others may have come round in the outer loop, and left out the call behind the inner one.
TEST(LoopExit, ACallBehindTheInnerLoopOnlyIsNoExit) {
  const Call inner = all_reduce("dp", 8).at("t.py", 21).in_loop(10).in_loop(18);
  const Call epoch_end = all_reduce("dp", 1).at("t.py", 27).in_loop(10);
  const lockstep::Run run = hanging(
      {times(3, {inner}) + Row{inner.pending()}, times(3, {inner}) + Row{epoch_end.pending()}});
  EXPECT_TRUE(checked(run).findings.empty());
  EXPECT_TRUE(only_finding(run).culprits.empty());
}

const Call kInner = all_reduce("dp", 8).at("t.py", 21).in_loop(10, "epoch").in_loop(18, "i");
const Call kEpochEnd = all_reduce("dp", 1).at("t.py", 27).in_loop(10, "epoch");

/// Each rank waits in its last call, and was seen there with this value of a variable.
lockstep::Run hanging_in_rounds(const std::vector<Row>& rows, const std::string& variable,
                                const std::vector<std::int64_t>& values) {
  lockstep::Run run = hanging(rows);
  for (std::size_t rank = 0; rank < rows.size(); ++rank) {
    const Process& process = run.processes[rank];
    StackSample stack = stack_of(run, *process.rank, {"c10d::Work::wait"});
    stack.frames.push_back(process.sites[process.collectives.back().site].frames.front());
    stack.variables.push_back({1, variable, values[rank]});
    run.stacks.push_back(std::move(stack));
  }
  return run;
}

TEST(LoopExit, InTheSameRoundOfTheOuterLoopItIsOne) {
  const Row epoch = times(5, {kInner}) + Row{kEpochEnd};
  const Finding finding =
      only_finding(hanging_in_rounds({epoch + times(3, {kInner}) + Row{kInner.pending()},
                                      epoch + times(3, {kInner}) + Row{kEpochEnd.pending()}},
                                     "epoch", {1, 1}));
  EXPECT_EQ(finding.code, Code::kUnevenBatches);
  EXPECT_EQ(finding.culprits, RankSet{Rank{1}});
  EXPECT_EQ(finding.headline,
            "rank 1 left the loop at t.py:21 after 3 rounds; rank 0 went on with round 4");
}

TEST(LoopExit, InAnotherRoundOfTheOuterLoopItIsNone) {  // Rank 0 left out the end of its epoch.
  const std::vector<Row> rows{times(3, {kInner}) + Row{kInner.pending()},
                              times(3, {kInner}) + Row{kEpochEnd.pending()}};
  EXPECT_TRUE(checked(hanging_in_rounds(rows, "epoch", {1, 0})).findings.empty());
  EXPECT_TRUE(checked(hanging_in_rounds(rows, "lr", {0, 0})).findings.empty());
  EXPECT_EQ(checked(hanging_in_rounds(rows, "epoch", {0, 0})).findings.size(), 1U);
}

TEST(LoopExit, ACallBeforeTheInnerLoopIsNone) {  // Every epoch but the first begins with it.
  Call before = kEpochEnd.pending();
  before.line = 15;
  const std::vector<Row> rows{times(3, {kInner}) + Row{kInner.pending()},
                              times(3, {kInner}) + Row{before}};
  EXPECT_TRUE(checked(hanging_in_rounds(rows, "epoch", {1, 1})).findings.empty());
}

TEST(LoopExit, AVariableOfTwoLoopsTellsNothing) {
  const Call inner = all_reduce("dp", 8).at("t.py", 21).in_loop(10, "i").in_loop(18, "i");
  const Call epoch_end = all_reduce("dp", 1).at("t.py", 27).in_loop(10, "i");
  const std::vector<Row> rows{times(3, {inner}) + Row{inner.pending()},
                              times(3, {inner}) + Row{epoch_end.pending()}};
  EXPECT_TRUE(checked(hanging_in_rounds(rows, "i", {3, 3})).findings.empty());
}

TEST(LoopExit,
     AFunctionThatHasEndedTookItsLoopsWithIt) {  // An exception, and a barrier in finally.
  lockstep::Run run = hanging({rounds(3, {kBackward.pending()}), rounds(3, {kBarrier.pending()})});
  const auto called_from = [&](std::int32_t line) {
    return Frame{"/app/t.py", static_cast<std::uint64_t>(line), "t.py", line, "main", {}};
  };
  for (Process& process : run.processes) {
    for (CallSite& site : process.sites) {
      for (Frame& frame : site.frames)
        frame.function = frame.line == 30 ? "main" : frame.function;
      if (!site.frames.empty() && site.frames.front().line != 30)
        site.frames.insert(std::next(site.frames.begin()), called_from(40));
    }
  }
  EXPECT_EQ(only_finding(run).code, Code::kUnevenBatches);
  EXPECT_EQ(only_finding(run).culprits, RankSet{Rank{1}});
}

TEST(LoopExit, WhatIsInlinedIntoAFunctionIsInItsLoops) {
  lockstep::Run run = hanging({rounds(3, {kBackward.pending()}), rounds(3, {kBarrier.pending()})});
  for (Process& process : run.processes) {
    for (CallSite& site : process.sites) {
      for (Frame& frame : site.frames) {
        frame.inlined_into = frame.line == 30 ? "" : "main";
        frame.function = frame.line == 30 ? "main" : frame.function;
      }
    }
  }
  EXPECT_EQ(only_finding(run).code, Code::kUnevenBatches);
  EXPECT_EQ(only_finding(run).culprits, RankSet{Rank{1}});
  for (Process& process : run.processes) {  // Of another function nothing is said.
    for (CallSite& site : process.sites) {
      for (Frame& frame : site.frames)
        frame.inlined_into = frame.line == 30 ? "" : "train";
    }
  }
  EXPECT_TRUE(checked(run).findings.empty());
}

TEST(LoopExit, OfAStackThatWasCutOffTheOuterLoopsAreNotKnown) {
  lockstep::Run run = hanging({rounds(3, {kBackward.pending()}), rounds(3, {kBarrier.pending()})});
  for (Process& process : run.processes) {
    for (CallSite& site : process.sites) {
      while (!site.frames.empty() && site.frames.size() < history::kFramesMax)
        site.frames.push_back({"/app/t.py", site.frames.size(), "t.py", 50, "call", {}});
    }
  }
  EXPECT_TRUE(checked(run).findings.empty());
}

TEST(LoopExit, ACallWhoseLineIsNotKnownMayStandInTheLoop) {
  lockstep::Run run = hanging({rounds(3, {kBackward.pending()}), rounds(3, {kBarrier.pending()})});
  for (Process& process : run.processes) {
    for (CallSite& site : process.sites) {
      for (Frame& frame : site.frames)
        frame.line = frame.line == 30 ? 0 : frame.line;
    }
  }
  EXPECT_TRUE(checked(run).findings.empty());
}

TEST(LoopExit, WithoutTheSourceNobodyIsSaidToHaveLeft) {
  const Call backward = all_reduce("dp", 8).at("t.cc", 21);
  const Row before = times(3, {backward});
  const lockstep::Run run = hanging(
      {before + Row{backward.pending()}, before + Row{barrier("dp").at("t.cc", 30).pending()}});
  EXPECT_TRUE(checked(run).findings.empty());
  EXPECT_EQ(only_finding(run).code, Code::kDifferentOp);
  EXPECT_TRUE(only_finding(run).culprits.empty());
}

TEST(LoopExit, WithoutTwoRoundsThereIsNoPattern) {
  const lockstep::Run run = exiting({rounds(1, {kBackward.failed()}), rounds(1)});
  EXPECT_TRUE(checked(run).findings.empty());
  EXPECT_EQ(only_finding(run).code, Code::kLeftEarly);
}

TEST(LoopExit, ARankThatIsSlowOrDiedHasNotLeft) {
  lockstep::Run run = hanging({rounds(3, {kBackward.pending()}), rounds(3)});
  EXPECT_TRUE(checked(run).findings.empty()) << "it may be on its way";
  run = make_run({rounds(3, {kBackward.failed()}), rounds(3)});
  ends_with_status(run, Rank{1}, 3, stall_ns(run));
  ends_with_status(run, Rank{0}, 1, stall_ns(run) + kMs);
  EXPECT_TRUE(checked(run).findings.empty());
  EXPECT_EQ(only_finding(run).code, Code::kRankDied);
}

TEST(LoopExit, LinesThatAlwaysDifferAreNoExit) {  // if rank == 0: broadcast(a) else: broadcast(b)
  const Row root = times(5, {broadcast("dp", 8).at("t.py", 21).in_loop(18)});
  const Row other = times(5, {broadcast("dp", 8).at("t.py", 23).in_loop(18)});
  EXPECT_EQ(checked(make_run({root, other})).outcome, Outcome::kPass);
}

// ---- Cannot decide.

TEST(LoopExit, WhatIsNotKnownConvictsNobody) {
  const lockstep::Run whole =
      hanging({rounds(3, {kBackward.pending()}), rounds(3, {kBarrier.pending()})});
  lockstep::Run run = whole;
  run.journal_complete = false;
  EXPECT_EQ(checked(run).outcome, Outcome::kUndecided);
  run = whole;
  process_of(run, Rank{1}).groups[0].seen_from_creation = false;
  EXPECT_EQ(checked(run).outcome, Outcome::kUndecided);
  run = whole;
  run.processes.pop_back();
  EXPECT_TRUE(checked(run).findings.empty());
  run = whole;
  run.plan.scenario = "uneven-batches";
  EXPECT_EQ(checked(run).outcome, Outcome::kSkipped);
}

TEST(LoopExit, ABodyThatIssuesTheSameCallTwiceIsOneRound) {
  const Row three = kStart2 + times(3, {kBackward, kBackward, kLog});
  const Finding finding =
      only_finding(hanging({three + Row{kBackward.pending()}, three + Row{kBarrier.pending()}}));
  EXPECT_EQ(finding.headline,
            "rank 1 left the loop at t.py:21 after 3 rounds; rank 0 went on with round 4");
}

TEST(LoopExit, TheShortestPatternIsTaken) {
  const lockstep::Run run = make_run({kStart2 + times(4, {kBackward, kBackward, kLog})});
  const Member member = group_views(run).front().members.front();
  const auto loop = checkers::repetition_before(member, 11);
  ASSERT_TRUE(loop);
  EXPECT_EQ(loop->period, 3U);
  EXPECT_EQ(loop->begin, 2U);
  EXPECT_FALSE(checkers::repetition_before(member, 6)) << "one repetition is none";
}

}  // namespace
}  // namespace lockstep::testing
