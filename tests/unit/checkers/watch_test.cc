// Goal: replicas that part for good are told, with their step and why; those that meet again, or of
// which too little was seen, are not. A value that is not finite is traced to who handed it in.
#include <gtest/gtest.h>

#include <memory>

#include "checkers/allowed.h"
#include "checkers/watch/finite_values.h"
#include "checkers/watch/first_divergence.h"
#include "checkers/watch/parted.h"
#include "checkers/watch/replica_drift.h"
#include "harness/history/watched_values.h"
#include "tests/support/typed_run.h"

namespace lockstep::testing {
namespace {

using history::WatchEntry;

/// What one rank holds before a step: a value, the gradient given, the settings.
struct Held {
  double value{}, gradient{1};
  std::uint64_t settings{};
  std::uint32_t flags{};
  double rate{0.1};
};

history::WatchValue value_of(double x) {
  return {.digest = static_cast<std::uint64_t>(x * 1e6) + 1, .sums = {x, -x}, .norm = 1};
}

/// Row r is what rank r held, step by step; one all_reduce a step.
lockstep::Run watched(const std::vector<std::vector<Held>>& rows) {
  lockstep::Run run = make_run(std::vector<std::vector<Call>>(rows.size(), {all_reduce("dp", 8)}));
  run.plan.options["watch"] = "1 %";
  for (std::size_t rank = 0; rank < rows.size(); ++rank) {
    auto values = std::make_shared<WatchedValues>();
    values->on = true;
    values->tensors.push_back(
        {.name = "lin.weight", .reduced = true, .dtype = history::DType::kFloat32, .numel = 8});
    for (std::size_t step = 0; step < rows[rank].size(); ++step) {
      const Held& held = rows[rank][step];
      WatchEntry entry{};
      entry.flags = history::kValueSeen | history::kGradientSeen | held.flags;
      entry.value = value_of(held.value);
      entry.gradient = value_of(held.gradient);
      entry.settings = held.settings;
      entry.learning_rate = held.rate;
      values->points.push_back({.at_ns = kStart + step * kMs,
                                .position = step + 1,
                                .step = step + 1,
                                .entries = {entry}});
    }
    values->steps = values->watched = rows[rank].size();
    process_of(run, Rank{static_cast<std::int32_t>(rank)}).watched = std::move(values);
  }
  return run;
}

std::vector<Held> steady(std::size_t steps) { return std::vector<Held>(steps, Held{1}); }

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
                       std::uint64_t numel = 8) {
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
  const auto seen = [&](std::uint32_t optimizer) {
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

Verdict finite(const lockstep::Run& run) { return checkers::FiniteValues().check(run); }

lockstep::Run broken_from(std::size_t first, std::size_t steps) {
  std::vector<Held> row = steady(steps);
  for (std::size_t step = first; step < steps; ++step)
    row[step].flags = history::kValueNotFinite | history::kGradientNotFinite;
  return watched({row, row});
}

TEST(FiniteValues, NamesTheRankThatHandedItIn) {
  lockstep::Run run = broken_from(2, 5);
  process_of(run, Rank{1}).watched->non_finite.push_back({.at_ns = kStart, .position = 2});
  process_of(run, Rank{0}).watched->non_finite.push_back({.at_ns = kStart, .position = 3});
  const Verdict verdict = finite(run);
  ASSERT_EQ(verdict.findings.size(), 1U);
  EXPECT_EQ(verdict.findings[0].step, 3);
  EXPECT_EQ(verdict.findings[0].culprits, RankSet{Rank{1}});
  const std::vector<Evidence>& lines = verdict.findings[0].evidence;
  ASSERT_EQ(lines.size(), 2U);
  EXPECT_EQ(lines[0].ranks, RankSet::all(2));  // Who holds it.
  EXPECT_EQ(lines[0].text, "lin.weight: finite before step 2, not before step 3");
  EXPECT_EQ(lines[1].ranks, RankSet{Rank{1}});
  for (const Evidence& line : lines)
    EXPECT_EQ(line.kind, EvidenceKind::kValue);
}

TEST(FiniteValues, TellsTheGradientThatWasNotBefore) {
  lockstep::Run run = broken_from(2, 5);
  process_of(run, Rank{1}).watched->points[1].entries[0].flags |= history::kGradientNotFinite;
  const Verdict verdict = finite(run);
  ASSERT_EQ(verdict.findings.size(), 1U);
  EXPECT_EQ(verdict.findings[0].evidence.back().text,
            "its gradient at step 2 was not finite on rank 1");
}

TEST(FiniteValues, IsToldWhileItRunsUnlessReplicasPartedBefore) {
  std::vector<Held> one = steady(9), other = steady(9);
  for (std::size_t step = 4; step < 9; ++step)
    one[step].flags = other[step].flags = history::kValueNotFinite | history::kGradientNotFinite;
  EXPECT_EQ(checkers::first_divergence(watched({one, other})),
            "step 5: lin.weight is not finite on ranks 0,1");
  for (std::size_t step = 2; step < 9; ++step)
    other[step].value = 2;
  const lockstep::Run both = watched({one, other});
  EXPECT_EQ(checkers::first_divergence(both), drift(both).findings.at(0).headline);
  EXPECT_EQ(drift(both).findings[0].step, 3);
  EXPECT_FALSE(checkers::first_divergence(watched({steady(9), steady(9)})).has_value());
}

TEST(FiniteValues, NamesNobodyWhereAllDidAtOnce) {
  lockstep::Run run = broken_from(2, 5);
  for (std::int32_t rank = 0; rank < 2; ++rank)
    process_of(run, Rank{rank}).watched->non_finite.push_back({.at_ns = kStart, .position = 2});
  const Verdict verdict = finite(run);
  ASSERT_EQ(verdict.findings.size(), 1U);
  EXPECT_TRUE(verdict.findings[0].culprits.empty());
}

TEST(FiniteValues, StaysSilentWhereItNeverWasFiniteOrNoStepFollowed) {
  EXPECT_EQ(finite(broken_from(0, 5)).outcome, Outcome::kPass);  // A mask.
  lockstep::Run run = watched({steady(5), steady(5)});
  process_of(run, Rank{1}).watched->non_finite.push_back({.at_ns = kStart, .position = 2});
  EXPECT_EQ(finite(run).outcome, Outcome::kPass);
}

TEST(FiniteValues, ANoteWhereItIsFiniteAgainOrWasGivenUp) {
  std::vector<Held> row = steady(8);
  row[2].flags = row[3].flags = history::kValueNotFinite;
  const Verdict again = finite(watched({row, row}));
  ASSERT_EQ(again.findings.size(), 1U);
  EXPECT_EQ(again.findings[0].severity, Severity::kNote);
  EXPECT_EQ(again.outcome, Outcome::kPass);

  lockstep::Run other = broken_from(2, 4);
  for (std::int32_t rank = 0; rank < 2; ++rank) {
    WatchedValues& values = *process_of(other, Rank{rank}).watched;
    for (std::uint64_t step = 5; step < 10; ++step) {
      WatchedPoint point = values.points.front();
      point.at_ns = kStart + step * kMs;
      point.position = step;
      point.optimizer = 1;
      values.points.push_back(point);
    }
  }
  ASSERT_EQ(finite(other).findings.size(), 1U);
  EXPECT_EQ(finite(other).findings[0].severity, Severity::kNote);
}

TEST(FiniteValues, ANoteWhereNothingElseIsNotFinite) {
  std::vector<Held> row = steady(6);
  for (std::size_t step = 2; step < 6; ++step)
    row[step].flags = history::kValueNotFinite;
  lockstep::Run run = watched({row, row});
  ASSERT_EQ(finite(run).findings.size(), 1U);
  EXPECT_EQ(finite(run).findings[0].severity, Severity::kNote);
  EXPECT_EQ(finite(run).outcome, Outcome::kPass);
  EXPECT_FALSE(checkers::first_divergence(run).has_value());

  process_of(run, Rank{1}).watched->points[4].entries[0].flags |= history::kGradientNotFinite;
  EXPECT_EQ(finite(run).outcome, Outcome::kFail);

  lockstep::Run handed_in = watched({row, row});
  process_of(handed_in, Rank{0}).watched->non_finite.push_back({.at_ns = kStart + kMs});
  EXPECT_EQ(finite(handed_in).outcome, Outcome::kFail);

  lockstep::Run unseen = watched({row, row});
  process_of(unseen, Rank{0}).watched->points[4].entries[0].flags &= ~history::kGradientSeen;
  EXPECT_EQ(finite(unseen).outcome, Outcome::kFail);
}

TEST(FiniteValues, ANoteWhereTheRateIsRaisedToFindTheLargest) {
  const auto raised = [](double by_factor, double by_sum) {
    std::vector<Held> row = steady(8);
    for (std::size_t step = 1; step < 8; ++step)
      row[step].rate = row[step - 1].rate * by_factor + by_sum;
    for (std::size_t step = 5; step < 8; ++step)
      row[step].flags = history::kValueNotFinite | history::kGradientNotFinite;
    return finite(watched({row, row})).findings.at(0).severity;
  };
  EXPECT_EQ(raised(10, 0), Severity::kNote);
  EXPECT_EQ(raised(1, 0.1), Severity::kError);
  EXPECT_EQ(raised(1, 0), Severity::kError);
}

/// Three optimizers after each other; what the last one stepped is not finite.
lockstep::Run trials(double rate_of_second, bool anew) {
  lockstep::Run run = broken_from(2, 4);
  for (std::int32_t rank = 0; rank < 2; ++rank) {
    WatchedValues& values = *process_of(run, Rank{rank}).watched;
    const std::vector<WatchedPoint> last = values.points;
    values.points.clear();
    for (std::uint32_t trial = 0; trial < 3; ++trial) {
      for (std::uint64_t step = 0; step < last.size(); ++step) {
        WatchedPoint point = trial == 2 ? last[step] : last.front();
        point.at_ns = kStart + (4 * trial + step) * kMs;
        point.position = 4 * trial + step + 1;
        point.step = step + 1;
        point.optimizer = trial;
        WatchEntry& entry = point.entries[0];
        entry.learning_rate = trial == 0 ? 0.01 : trial == 1 ? rate_of_second : 10;
        entry.value.digest += anew ? 0 : trial;
        values.points.push_back(point);
      }
    }
  }
  return run;
}

TEST(FiniteValues, ANoteWhereItIsOneOfSeveralRatesThatAreTried) {
  EXPECT_EQ(finite(trials(0.1, true)).findings.at(0).severity, Severity::kNote);
  EXPECT_EQ(finite(trials(0.1, false)).findings.at(0).severity, Severity::kError);
  EXPECT_EQ(finite(trials(0.01, true)).findings.at(0).severity, Severity::kError);
}

TEST(FiniteValues, ANoteWhereEachRankTriesARateOfItsOwn) {
  lockstep::Run run = broken_from(2, 5);
  for (WatchedPoint& point : process_of(run, Rank{0}).watched->points)
    point.entries[0].learning_rate = 0.001;
  ASSERT_EQ(finite(run).findings.size(), 1U);
  EXPECT_EQ(finite(run).findings[0].severity, Severity::kNote);
}

TEST(FiniteValues, CannotDecideWithoutAWatchedStep) {
  EXPECT_EQ(finite(watched({{}, {}})).outcome, Outcome::kUndecided);
}

}  // namespace
}  // namespace lockstep::testing
