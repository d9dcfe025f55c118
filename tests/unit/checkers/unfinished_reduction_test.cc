// Goal: the rank whose backward left out a reduction is named by what DDP says at its next forward,
// and nobody is where all say so, or where nobody waits.
#include "checkers/order/unfinished_reduction.h"

#include <gtest/gtest.h>

#include "checkers/judge.h"
#include "tests/support/typed_run.h"

namespace lockstep::testing {
namespace {

constexpr const char* kText =
    "RuntimeError: Expected to have finished reduction in the prior iteration before starting a "
    "new one. [...] Parameter indices which did not receive grad for rank 1: 2 3 \n In addition";

void says(lockstep::Run& run, Rank rank, const std::string& text) {
  const std::uint64_t at_ns = stall_ns(run);
  Raised raised{.at_ns = at_ns, .rank = rank, .pid = 1000 + rank.value, .text = text};
  raised.raised_at.frames = {{"", 0, "t.py", 31, "main", {}}};
  run.raised.push_back(raised);
  ends_with_status(run, rank, 1, at_ns + kMs);
}

/// Rank 1 left out the last call, and says so; the others lose it then.
lockstep::Run left_out(std::size_t world = 2) {
  const Row step{all_reduce("dp", 8).at("t.py", 32)};
  std::vector<Row> rows(world, times(2, step) + Row{all_reduce("dp", 8).at("t.py", 32).failed()});
  rows[1] = times(2, step);
  lockstep::Run run = make_run(rows);
  says(run, Rank{1}, kText);
  for (std::size_t rank = 0; rank < world; ++rank) {
    if (rank != 1)
      ends_with_status(run, Rank{static_cast<std::int32_t>(rank)}, 1, stall_ns(run) + 5 * kMs);
  }
  return run;
}

TEST(UnfinishedReduction, TheRankThatSaysSoIsNamedAndItsEndIsAConsequence) {
  for (const std::size_t world : {2U, 3U}) {
    const auto judged = checkers::judge(left_out(world), checkers::all_checkers());
    ASSERT_EQ(judged.findings.size(), 1U);
    const Finding& finding = judged.findings.front();
    EXPECT_EQ(finding.code, Code::kMissingCall);
    EXPECT_EQ(finding.culprits, RankSet{Rank{1}});
    EXPECT_EQ(finding.seq, 2U);
    EXPECT_EQ(finding.headline,
              "rank 1 left out all_reduce dp#2 in its backward: a parameter got no gradient; " +
                  std::string(world == 2 ? "rank 0 waits in it" : "ranks 0,2 wait in it"));
    ASSERT_EQ(finding.sites.size(), 2U);
    EXPECT_EQ(finding.sites[0].line, 31);
    EXPECT_EQ(finding.sites[1].line, 32);
    EXPECT_EQ(finding.evidence.front().text,
              "rank 1: no gradient for the parameters 2 3 (by index, as in model.parameters())");
  }
}

TEST(UnfinishedReduction, WhereAllSaySoItIsTheProgram) {
  lockstep::Run run = make_run(std::vector<Row>(2, times(2, {all_reduce("dp", 8)})));
  says(run, Rank{0}, kText);
  says(run, Rank{1}, kText);
  EXPECT_EQ(checkers::UnfinishedReduction().check(run).outcome, Outcome::kPass);
  const auto judged = checkers::judge(run, checkers::all_checkers());
  ASSERT_EQ(judged.findings.size(), 1U);
  EXPECT_EQ(judged.findings[0].code, Code::kRankDied);
  EXPECT_TRUE(judged.findings[0].culprits.empty());
}

TEST(UnfinishedReduction, WhereNobodyWaitsNothingIsSaid) {
  lockstep::Run run = make_run(std::vector<Row>(2, times(2, {all_reduce("dp", 8)})));
  says(run, Rank{1}, kText);
  EXPECT_EQ(checkers::UnfinishedReduction().check(run).outcome, Outcome::kPass);
  EXPECT_EQ(checkers::UnfinishedReduction().check(make_run({{}, {}})).outcome, Outcome::kSkipped);
}

TEST(UnfinishedReduction, WhatIsNotKnownConvictsNobody) {
  lockstep::Run run = left_out();
  run.journal_complete = false;
  const Verdict verdict = checkers::UnfinishedReduction().check(run);
  EXPECT_TRUE(verdict.findings.empty());
  EXPECT_EQ(verdict.outcome, Outcome::kUndecided);
}

}  // namespace
}  // namespace lockstep::testing
