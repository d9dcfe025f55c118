// Goal: of ranks that wait for each other in different groups with the same members, the one that
// parted from the others is named, and none where that does not show.
#include <gtest/gtest.h>

#include "checkers/deadlock.h"
#include "tests/support/typed_run.h"

namespace lockstep::testing {
namespace {

const Call kGradient = all_reduce("dp", 8).at("train.py", 8);
const Call kMetric = all_reduce("metric", 2).at("train.py", 10);
const Row kStep{kGradient, kMetric};

Finding stuck(lockstep::Run run) {
  hang(run);
  const Verdict verdict = checkers::Deadlock().check(run);
  EXPECT_EQ(verdict.findings.size(), 1U) << verdict.reason;
  return verdict.findings.empty() ? Finding{} : verdict.findings.front();
}

Row until(std::size_t steps, const Row& then) { return times(steps, kStep) + then; }

/// Waits for the metric, as it should.
Row in_order(std::size_t steps) { return until(steps, {kGradient, Call(kMetric).inside()}); }

/// Left the metric out.
Row without_it(std::size_t steps) { return until(steps, {kGradient, Call(kGradient).inside()}); }

TEST(Parting, WhoLeftACallOutIsTheFewer) {
  const Finding finding = stuck(make_run({in_order(3), without_it(3), in_order(3)}));
  EXPECT_EQ(finding.code, "LS302");
  EXPECT_EQ(finding.culprits, RankSet{Rank{1}});
  EXPECT_EQ(finding.confidence, Confidence::kLikely);
  EXPECT_EQ(finding.cause,
            "up to all_reduce dp#3 all made the same calls in the same order, then rank 1 made "
            "another one");
  ASSERT_EQ(finding.sites.size(), 2U);
  EXPECT_EQ(finding.sites[0].role, "culprit");
  EXPECT_EQ(finding.sites[0].line, 8);
  EXPECT_EQ(finding.sites[1].line, 10);
}

TEST(Parting, WhoMadeACallTooManyOrTookThemInAnotherOrderIsTheFewer) {
  const Row next = until(3, {Call(kGradient).inside()});
  const Row again = until(3, {Call(kMetric).inside()});
  EXPECT_EQ(stuck(make_run({next, next, again})).culprits, RankSet{Rank{2}});
  const Row first{Call(kGradient).inside()}, turned{Call(kMetric).inside()};
  EXPECT_EQ(stuck(make_run({first, turned, first})).culprits, RankSet{Rank{1}})
      << "at their first call";
}

TEST(Parting, OfTwoRanksTheOneThatBreaksItsHabit) {
  EXPECT_EQ(stuck(make_run({in_order(9), without_it(9)})).culprits, RankSet{Rank{1}});
  EXPECT_EQ(stuck(make_run({in_order(3), without_it(3)})).culprits, RankSet{}) << "no habit yet";
}

TEST(Parting, HalfOfThemAreNotTheFewer) {
  const Finding finding = stuck(make_run({in_order(3), without_it(3), in_order(3), without_it(3)}));
  EXPECT_EQ(finding.culprits, RankSet{});
  EXPECT_EQ(finding.code, "LS302");
}

/// Ranks 0 and 1 have a group of their own, and one of them left its call out: the others never
/// make it.
TEST(Parting, WhoIsNotInTheGroupIsNoWitness) {
  const Row step{all_reduce("leaders", 4), kGradient};
  lockstep::Run run = make_run({times(3, step) + Row{all_reduce("leaders", 4).inside()},
                                times(3, step) + Row{Call(kGradient).inside()},
                                times(3, {kGradient}) + Row{Call(kGradient).inside()},
                                times(3, {kGradient}) + Row{Call(kGradient).inside()}});
  set_members(run, "leaders", {Rank{0}, Rank{1}});
  EXPECT_EQ(stuck(run).culprits, RankSet{});
}

/// Rank 1 makes the first metric's call later than the others, and that came to its end.
TEST(Parting, AnotherOrderThatDidNoHarmIsNobodysFault) {
  const Call metric = Call(kMetric).async();
  const Row early{kGradient, metric, kGradient, Call(kMetric).inside()};
  const Row late{kGradient, kGradient, metric, Call(kGradient).inside()};
  EXPECT_EQ(stuck(make_run({early, late, early})).culprits, RankSet{});
}

TEST(Parting, TheOrderOfTwoThreadsIsNobodysFault) {
  const auto threads = [](Row row) {
    for (Call& call : row)
      call.record.thread = call.group == "dp" ? call.record.thread : 77;
    return row;
  };
  lockstep::Run run =
      make_run({threads(in_order(3)), threads(without_it(3)), threads(in_order(3))});
  hang(run);
  const Verdict verdict = checkers::Deadlock().check(run);
  for (const Finding& finding : verdict.findings)
    EXPECT_EQ(finding.culprits, RankSet{});
}

TEST(Parting, WhatIsNotKnownBlamesNobody) {
  lockstep::Run run = make_run({in_order(3), without_it(3), in_order(3)});
  for (Group& group : process_of(run, Rank{2}).groups)
    group.seen_from_creation = false;
  hang(run);
  for (const Finding& finding : checkers::Deadlock().check(run).findings)
    EXPECT_EQ(finding.culprits, RankSet{});
}

}  // namespace
}  // namespace lockstep::testing
