// Goal: a value that is not finite is traced to who handed it in; what a program tries, or gives
// up, is a note.
#include "checkers/watch/finite_values.h"

#include <gtest/gtest.h>

#include "checkers/watch/first_divergence.h"
#include "checkers/watch/replica_drift.h"
#include "tests/support/watched_run.h"

namespace lockstep::testing {
namespace {

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
  EXPECT_EQ(checkers::first_divergence(both),
            checkers::ReplicaDrift().check(both).findings.at(0).headline);
  EXPECT_EQ(checkers::ReplicaDrift().check(both).findings[0].step, 3);
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
        history::WatchEntry& entry = point.entries[0];
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
