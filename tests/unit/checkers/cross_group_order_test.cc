// Goal: of ranks that wait for each other in different groups with the same members, the one that
// parted from the others is named, and none where that does not show.
#include <gtest/gtest.h>

#include "checkers/hang/deadlock.h"
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
  EXPECT_EQ(finding.code, Code::kWaitCycle);
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
  EXPECT_EQ(finding.code, Code::kWaitCycle);
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

// --- A mesh: each rank has a group for tensors with one peer, and one for data with another one.

const Call kBarrier = barrier("world").at("mesh.py", 20);

/// `calls` of a round: t(ensor) and d(ata), named by the first of their members.
Row mesh_round(int rank, const std::string& calls) {
  const std::string tensor = rank < 2 ? "t0" : "t2", data = rank % 2 == 0 ? "d0" : "d1";
  Row row;
  for (const char kind : calls)
    row.push_back(kind == 't' ? all_reduce(tensor, 4).at("mesh.py", 10)
                              : all_reduce(data, 8).at("mesh.py", 13));
  return row;
}

constexpr std::size_t kAfter = 200;  // So many rounds later it shows.

/// `own` are the rounds of a rank in the place of the tenth, and then what it does at its end.
lockstep::Run mesh(const std::vector<Row>& own, const std::vector<Row>& end) {
  std::vector<Row> rows;
  for (int rank = 0; rank < 4; ++rank) {
    const Row round = mesh_round(rank, "td");
    const auto at = static_cast<std::size_t>(rank);
    rows.push_back(times(9, round) + own[at] + times(kAfter, round) + end[at]);
  }
  lockstep::Run run = make_run(rows);
  set_members(run, "t0", {Rank{0}, Rank{1}});
  set_members(run, "t2", {Rank{2}, Rank{3}});
  set_members(run, "d0", {Rank{0}, Rank{2}});
  set_members(run, "d1", {Rank{1}, Rank{3}});
  return run;
}

Row stuck_in(int rank, const std::string& calls) {
  Row row = mesh_round(rank, calls);
  row.back() = row.back().inside();
  return row;
}

/// Rounds of all ranks, the one of rank 3 excepted.
std::vector<Row> all_but(const Row& last) {
  return {mesh_round(0, "td"), mesh_round(1, "td"), mesh_round(2, "td"), last};
}

const Row kAtTheEnd{Call(kBarrier).inside()};

TEST(Parting, InAMeshTheOneThatLeftOutWhatItAlwaysMade) {
  // Rank 3 is a call ahead of rank 2, which waits in its last one; rank 0 waits for rank 2.
  lockstep::Run run =
      mesh(all_but(mesh_round(3, "d")), {stuck_in(0, "td"), mesh_round(1, "td") + kAtTheEnd,
                                         stuck_in(2, "t"), mesh_round(3, "td") + kAtTheEnd});
  const Finding finding = stuck(run);
  EXPECT_EQ(finding.code, Code::kWaitCycle);
  EXPECT_EQ(finding.culprits, RankSet{Rank{3}});
  EXPECT_EQ(finding.confidence, Confidence::kLikely);
  EXPECT_EQ(finding.cause,
            "rank 3 always made the all_reduce at mesh.py:10 after the calls before it, and once "
            "went on without it");
  ASSERT_EQ(finding.sites.size(), 2U);
  EXPECT_EQ(finding.sites[0].role, "culprit");
  EXPECT_EQ(finding.sites[0].line, 13);
  EXPECT_EQ(finding.sites[1].line, 10);
}

TEST(Parting, InAMeshACallThatWasNotSeenIsNotOneLeftOut) {
  // The line is the same for both groups, and of one of them not all calls of rank 3 were seen.
  lockstep::Run run =
      mesh(all_but(mesh_round(3, "t")), {stuck_in(0, "t"), kAtTheEnd, stuck_in(2, "t"), kAtTheEnd});
  for (const int rank : {2, 3}) {
    for (Collective& call : process_of(run, Rank{rank}).collectives)
      call.site = process_of(run, Rank{rank}).collectives.front().site;
  }
  process_of(run, Rank{3}).groups[1].seen_from_creation = false;
  EXPECT_EQ(stuck(run).culprits, RankSet{});
}

TEST(Parting, InAMeshWhoseBeginningIsOverwrittenNobody) {
  lockstep::Run run =
      mesh(all_but(mesh_round(3, "d")), {stuck_in(0, "td"), mesh_round(1, "td") + kAtTheEnd,
                                         stuck_in(2, "t"), mesh_round(3, "td") + kAtTheEnd});
  ASSERT_EQ(stuck(run).culprits, RankSet{Rank{3}});
  for (const int rank : {2, 3}) {
    std::vector<Collective>& calls = process_of(run, Rank{rank}).collectives;
    calls.erase(calls.begin(), calls.begin() + 4);
    process_of(run, Rank{rank}).dropped = 4;
  }
  EXPECT_EQ(stuck(run).culprits, RankSet{});
}

TEST(Parting, InAMeshOfWhomOneTooManyExplainsItNobody) {
  // Rank 3 is still in its loop: that it made a call on data too many would look the same.
  EXPECT_EQ(stuck(mesh(all_but(mesh_round(3, "d")),
                       {stuck_in(0, "t"), kAtTheEnd, stuck_in(2, "t"), stuck_in(3, "td")}))
                .culprits,
            RankSet{});
}

TEST(Parting, InAMeshWhoseOwnHabitIsKeptIsNotToBlame) {
  // Rank 2 made a call on tensors too many, and has none for its last one.
  EXPECT_EQ(stuck(mesh({mesh_round(0, "td"), mesh_round(1, "td"), mesh_round(2, "ttd"),
                        mesh_round(3, "td")},
                       {stuck_in(0, "td"), mesh_round(1, "td") + kAtTheEnd, stuck_in(2, "t"),
                        mesh_round(3, "td") + kAtTheEnd}))
                .culprits,
            RankSet{});
}

TEST(Parting, InAMeshWhoTookTwoCallsInTheOtherOrderLeftNoneOut) {
  // Rank 2 waits in one too many of its own.
  EXPECT_EQ(
      stuck(mesh(all_but(mesh_round(3, "dt")), {kAtTheEnd, kAtTheEnd, stuck_in(2, "t"), kAtTheEnd}))
          .culprits,
      RankSet{});
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
