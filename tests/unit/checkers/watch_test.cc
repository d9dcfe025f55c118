// Goal: replicas that part for good are told, with their step and why; those that meet again, or of
// which too little was seen, are not.
#include <gtest/gtest.h>

#include "checkers/allowed.h"
#include "checkers/watch/first_divergence.h"
#include "checkers/watch/parted.h"
#include "checkers/watch/replica_drift.h"
#include "tests/support/watched_run.h"

namespace lockstep::testing {
namespace {

Verdict drift(const lockstep::Run& run) { return checkers::ReplicaDrift().check(run); }

TEST(ReplicaDrift, FiresWhereOnePartsAlthoughItsGradientIsReduced) {
  std::vector<Held> other = steady(6);
  for (std::size_t step = 2; step < 6; ++step)
    other[step].value = 2;
  const Verdict verdict = drift(watched({steady(6), steady(6), other}));
  ASSERT_EQ(verdict.outcome, Outcome::kFail);
  ASSERT_EQ(verdict.findings.size(), 1U);
  EXPECT_EQ(verdict.findings[0].code, Code::kParameterDiffers);
  EXPECT_EQ(verdict.findings[0].step, 3);
  EXPECT_EQ(verdict.findings[0].culprits, RankSet{Rank{2}});
  EXPECT_TRUE(checkers::first_divergence(watched({steady(6), steady(6), other})).has_value());
}

TEST(ReplicaDrift, TellsTheGradientThatWasNotReducedBefore) {
  std::vector<Held> other = steady(6);
  other[1].gradient = 3.5;
  for (std::size_t step = 2; step < 6; ++step)
    other[step].value = 2;
  std::vector<Held> one = steady(6);
  one[1].gradient = -1;
  lockstep::Run run = watched({one, other});
  for (std::int32_t rank = 0; rank < 2; ++rank) {  // Not a multiple of each other.
    auto& entry = process_of(run, Rank{rank}).watched->points[1].entries[0];
    entry.gradient.sums[rank] = 0;
  }
  const Verdict verdict = drift(run);
  ASSERT_EQ(verdict.findings.size(), 1U);
  EXPECT_EQ(verdict.findings[0].code, Code::kGradientNotSynchronised);
  EXPECT_EQ(verdict.findings[0].step, 2);
}

TEST(ReplicaDrift, TellsSettingsThatDiffer) {
  std::vector<Held> other = steady(6);
  for (std::size_t step = 2; step < 6; ++step)
    other[step] = Held{2, 1, /*settings=*/7};
  const Verdict verdict = drift(watched({steady(6), other}));
  ASSERT_EQ(verdict.findings.size(), 1U);
  EXPECT_EQ(verdict.findings[0].code, Code::kOptimizerStateDiffers);
}

TEST(ReplicaDrift, TellsAStateThatOnlySomeRanksHave) {
  std::vector<Held> one = steady(6), other = steady(6);
  one[1].flags = history::kStateSeen;
  for (std::size_t step = 2; step < 6; ++step)
    other[step].value = 2;
  const Verdict verdict = drift(watched({one, other}));
  ASSERT_EQ(verdict.findings.size(), 1U);
  EXPECT_EQ(verdict.findings[0].code, Code::kOptimizerStateDiffers);
  EXPECT_NE(verdict.findings[0].cause.find("on some ranks alone"), std::string::npos);
}

TEST(ReplicaDrift, TellsAnOptimizerThatOneRankMadeAnew) {
  std::vector<Held> other = steady(9);
  for (std::size_t step = 4; step < 9; ++step)
    other[step].value = 2;
  lockstep::Run run = watched({steady(9), other});
  for (std::size_t step = 3; step < 9; ++step)
    process_of(run, Rank{1}).watched->points[step].optimizer = 1;
  const Verdict verdict = drift(run);
  ASSERT_EQ(verdict.findings.size(), 1U);
  EXPECT_EQ(verdict.findings[0].code, Code::kOptimizerStateDiffers);
  EXPECT_NE(verdict.findings[0].cause.find("another optimizer"), std::string::npos);
  for (std::size_t step = 3; step < 9; ++step)  // So did all.
    process_of(run, Rank{0}).watched->points[step].optimizer = 1;
  ASSERT_EQ(drift(run).findings.size(), 1U);
  EXPECT_EQ(drift(run).findings[0].code, Code::kParameterDiffers);
}

TEST(ReplicaDrift, StaysSilentWhereTheyMeetAgain) {
  std::vector<Held> other = steady(9);
  for (std::size_t step = 2; step < 7; ++step)
    other[step].value = 2;
  EXPECT_EQ(drift(watched({steady(9), other})).outcome, Outcome::kPass);
}

TEST(ReplicaDrift, StaysSilentWhereGradientsWereNeverAveragedAndParametersMayBe) {
  std::vector<Held> one = steady(8), other = steady(8);
  for (std::size_t step = 2; step < 8; ++step) {
    other[step].value = 2;
    other[step].gradient = 2;  // A multiple: clipped, perhaps.
  }
  EXPECT_EQ(drift(watched({one, other})).outcome, Outcome::kPass);
}

/// Apart from step 3 on, together at step 7, and apart for good: the program moved as many numbers
/// as the parameter has, at `moved_ns`.
TEST(ReplicaDrift, StaysSilentWhereTheLastPeriodOfAnAveragingIsNotOver) {
  const auto seen = [](std::uint64_t moved_ns, history::DType as = history::DType::kFloat32,
                       std::uint64_t numel = 8, history::Op op = history::Op::kAllReduce) {
    std::vector<Held> one = steady(14), other = steady(14);
    for (std::size_t step = 1; step < 14; ++step) {
      other[step].gradient = 2;
      other[step].value = step > 1 && step != 6 ? 2 : 1;
    }
    lockstep::Run run = watched({one, other});
    for (std::int32_t rank = 0; rank < 2; ++rank) {
      Process& process = process_of(run, Rank{rank});
      process.collectives[0].issued_ns = moved_ns;
      process.collectives[0].dtype = as;
      process.collectives[0].op = op;
      process.watched->last_step_ns = kStart + 20 * kMs;
      process.collectives[0].numel_in = process.collectives[0].numel_out = numel;
      for (std::size_t step = 1; step < 14; ++step)  // No multiple.
        process.watched->points[step].entries[0].gradient.sums[static_cast<std::size_t>(rank)] = 0;
    }
    return drift(run);
  };
  EXPECT_EQ(seen(kStart + 5 * kMs).outcome, Outcome::kPass);
  ASSERT_EQ(seen(kStart + kMs).findings.size(), 1U);  // Before they parted: of something else.
  EXPECT_EQ(seen(kStart + kMs).findings[0].code, Code::kGradientNotSynchronised);
  // In fewer bits, packed, or of another kind altogether.
  EXPECT_EQ(seen(kStart + 5 * kMs, history::DType::kInt8).outcome, Outcome::kPass);
  EXPECT_EQ(seen(kStart + 5 * kMs, history::DType::kUInt8, 1).outcome, Outcome::kPass);
  EXPECT_EQ(seen(kStart + 5 * kMs, history::DType::kInt64).findings.size(), 1U);
  // Averaged once at the end; gathered there, to be compared or kept; gathered between two steps.
  const auto gathered = [&](std::uint64_t ns) {
    return seen(ns, history::DType::kFloat32, 8, history::Op::kAllGather);
  };
  EXPECT_EQ(seen(kStart + 21 * kMs).outcome, Outcome::kPass);
  EXPECT_EQ(gathered(kStart + 21 * kMs).findings.size(), 1U);
  EXPECT_EQ(gathered(kStart + 19 * kMs).outcome, Outcome::kPass);
}

TEST(ReplicaDrift, CannotDecideWhereTooLittleWasSeen) {
  std::vector<Held> other = steady(4);
  other[3].value = 2;
  const Verdict verdict = drift(watched({steady(4), other}));
  EXPECT_EQ(verdict.outcome, Outcome::kUndecided);
  EXPECT_TRUE(verdict.findings.empty());
}

TEST(ReplicaDrift, CannotDecideWhereARankWasNotWatched) {
  lockstep::Run run = watched({steady(4), steady(4)});
  process_of(run, Rank{1}).watched = nullptr;
  EXPECT_EQ(drift(run).outcome, Outcome::kUndecided);
  run.plan.options.clear();
  process_of(run, Rank{0}).watched = nullptr;
  EXPECT_EQ(drift(run).outcome, Outcome::kSkipped);
}

TEST(ReplicaDrift, SaysHowMuchWasWatchedAndWhatThatTookWhereItIsKnown) {
  lockstep::Run run = watched({steady(6), steady(6)});
  process_of(run, Rank{1}).watched->steps = 30;
  process_of(run, Rank{1}).watched->watched = 5;
  EXPECT_EQ(drift(run).reason, "watched 5 of 30 steps");
  WatchedValues& values = *process_of(run, Rank{0}).watched;
  values.steady_since_ns = kStart;
  values.steady_until_ns = kStart + 1000 * kMs;
  values.steady_ns = 8 * kMs;
  EXPECT_EQ(drift(run).reason, "watched 5 of 30 steps, 0.8 % of the time from step 17 on");
  process_of(run, Rank{1}).watched->dropped = 3;
  EXPECT_EQ(drift(run).reason,
            "watched 5 of 30 steps, 0.8 % of the time from step 17 on, 3 records found no room");
}

TEST(ReplicaDrift, ANoteWhereOnlyTheLastBitsDiffer) {
  std::vector<Held> other = steady(6);
  for (std::size_t step = 2; step < 6; ++step)
    other[step].value = 1 + 2e-6;
  const Verdict verdict = drift(watched({steady(6), other}));
  ASSERT_EQ(verdict.findings.size(), 1U);
  EXPECT_EQ(verdict.findings[0].severity, Severity::kNote);
  EXPECT_EQ(verdict.outcome, Outcome::kPass);
}

TEST(ReplicaDrift, ANoteWhereWhatTheyDifferByIsSomethingElseEachTime) {
  std::vector<Held> other = steady(8);
  const auto with = [&](const std::vector<double>& differences) {
    for (std::size_t step = 0; step < 8; ++step)
      other[step].value = 1 + differences[step];
    return drift(watched({steady(8), other})).findings.at(0).severity;
  };
  EXPECT_EQ(with({.2, -.1, .2, -.3, .1, -.2, .2, -.1}), Severity::kNote);
  EXPECT_EQ(with({.2, .2, .2, .2, .2, .2, .2, .2}), Severity::kError);
  EXPECT_EQ(with({.1, -.1, .2, -.2, .4, -.4, .8, -.9}), Severity::kError);  // It adds up.
}

TEST(ReplicaDrift, WhatIsAllowedBecomesANote) {
  std::vector<Held> other = steady(6);
  for (std::size_t step = 2; step < 6; ++step)
    other[step].value = 2;
  Verdict verdict = drift(watched({steady(6), other}));
  verdict.findings[0].sites.push_back({.file = "/somewhere/train.py", .function = "build"});
  Plan plan;
  plan.options["allow"] = "LS403@train.py:build no\nLS401@train.py:build an ensemble\nnonsense\n";
  checkers::allow(checkers::allowed_in(plan), verdict);
  EXPECT_EQ(verdict.outcome, Outcome::kPass);
  EXPECT_EQ(verdict.findings[0].severity, Severity::kNote);
  EXPECT_NE(verdict.findings[0].headline.find("an ensemble"), std::string::npos);
}

/// Four steps of which the gradients are averaged, then six of another optimizer on each rank
/// alone.
TEST(ReplicaDrift, ANoteWhereEachRankGoesOnAloneWithAnotherOptimizer) {
  std::vector<Held> one = steady(10), other = steady(10);
  for (std::size_t step = 4; step < 10; ++step) {
    other[step].gradient = 2;
    other[step].value = step > 4 ? 2 : 1;
  }
  const auto seen = [&](std::uint32_t optimizer, std::uint32_t flags = 0) {
    for (std::size_t step = 4; step < 10; ++step)
      one[step].flags = other[step].flags = flags;
    lockstep::Run run = watched({one, other});
    for (std::int32_t rank = 0; rank < 2; ++rank) {
      for (std::size_t step = 4; step < 10; ++step) {
        WatchedPoint& point = process_of(run, Rank{rank}).watched->points[step];
        point.optimizer = optimizer;
        point.entries[0].gradient.sums[static_cast<std::size_t>(rank)] = 0;  // No multiple.
      }
    }
    return drift(run);
  };
  ASSERT_EQ(seen(1).findings.size(), 1U);
  EXPECT_EQ(seen(1).findings[0].severity, Severity::kNote);
  EXPECT_EQ(seen(1).outcome, Outcome::kPass);
  ASSERT_EQ(seen(0).findings.size(), 1U);  // By the same one it may be a mistake.
  EXPECT_EQ(seen(0).findings[0].severity, Severity::kWarning);
  ASSERT_EQ(seen(0, history::kAlone).findings.size(), 1U);  // By no_sync() it is asked for.
  EXPECT_EQ(seen(0, history::kAlone).findings[0].severity, Severity::kNote);
}

/// What each rank adds to its gradient after the reducer has averaged it.
TEST(ReplicaDrift, TellsWhetherTheReducerRan) {
  std::vector<Held> one = steady(10), other = steady(10);
  for (std::size_t step = 4; step < 10; ++step) {
    other[step].gradient = 2;
    other[step].value = step > 4 ? 2 : 1;
  }
  lockstep::Run run = watched({one, other});
  for (std::int32_t rank = 0; rank < 2; ++rank) {
    auto& points = process_of(run, Rank{rank}).watched->points;
    for (std::size_t step = 4; step < 10; ++step)
      points[step].entries[0].gradient.sums[static_cast<std::size_t>(rank)] = 0;  // No multiple.
  }
  const auto cause = [&] {
    const Verdict verdict = drift(run);
    return verdict.findings.empty() ? std::string() : verdict.findings[0].cause;
  };
  EXPECT_EQ(cause(), "no gradient was averaged from there on, nor was the parameter");
  for (std::int32_t rank = 0; rank < 2; ++rank) {
    Process& process = process_of(run, Rank{rank});
    process.sites.resize(2);
    process.sites[1].frames = {{.function = "_engine_run_backward"}};
    process.collectives[0].site = 1;
    process.collectives[0].issued_ns = kStart + 7 * kMs;
  }
  EXPECT_EQ(cause().substr(0, 33), "gradients were averaged meanwhile");
}

TEST(ReplicaDrift, WhatAFunctionOfTheProgramMovesInBackwardIsNotTheReducers) {
  const auto site = [](const std::vector<Frame>& frames) {
    CallSite one;
    one.frames = frames;
    return one;
  };
  const Frame engine{.file = "/v/site-packages/torch/autograd/graph.py",
                     .function = "_engine_run_backward"};
  const Frame own{.file = "/job/parallel.py", .function = "AllReduce.backward"};
  const Frame hook{
      .file = "/v/site-packages/torch/distributed/algorithms/ddp_comm_hooks/default_hooks.py",
      .function = "allreduce_hook"};
  EXPECT_TRUE(checkers::is_of_replica(site({engine, own})));
  EXPECT_FALSE(checkers::is_of_replica(site({own, engine})));
  EXPECT_TRUE(checkers::is_of_replica(site({hook, engine})));
  EXPECT_TRUE(
      checkers::is_of_replica(site({own, {.function = "DistributedDataParallel._pre_forward"}})));
  EXPECT_FALSE(checkers::is_of_replica(site({})));
}

}  // namespace
}  // namespace lockstep::testing
