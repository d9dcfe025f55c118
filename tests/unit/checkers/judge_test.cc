// Goal: one divergence is one finding, the first one; what follows is counted; every code has its
// explanation.
#include "checkers/judge.h"

#include <gtest/gtest.h>

#include <chrono>
#include <stdexcept>

#include "tests/support/typed_run.h"

namespace lockstep::testing {
namespace {

using checkers::all_checkers;
using checkers::judge;
using checkers::Judgement;

Finding only_finding(const lockstep::Run& run) {
  const Judgement judgement = judge(run, all_checkers());
  EXPECT_EQ(judgement.outcome, Outcome::kFail);
  EXPECT_EQ(judgement.findings.size(), 1U);
  return judgement.findings.empty() ? Finding{} : judgement.findings.front();
}

lockstep::Run with_conversation(lockstep::Run run) {
  converse(run);
  return run;
}

TEST(Judge, AHealthyRunHasNoFinding) {
  const Row row = times(5, {all_reduce("dp", 8)});
  const Judgement judgement = judge(with_conversation(make_run({row, row, row})), all_checkers());
  EXPECT_TRUE(judgement.findings.empty());
  for (const Verdict& verdict : judgement.verdicts)
    EXPECT_NE(verdict.outcome, Outcome::kFail) << verdict.name;
}

TEST(Judge, AMismatchExplainsTheAbortThatFollows) {
  const Row row = times(3, {all_reduce("dp", 8)});
  lockstep::Run run =
      make_run({row + Row{all_reduce("dp", 8).pending()}, row + Row{all_reduce("dp", 8).pending()},
                row + Row{all_reduce("dp", 9).pending()}});
  ends_with_signal(run, Rank{0}, 6,
                   kStart + 40 * kMs);  // Gloo aborts the receiver of the larger message.
  ends_with_status(run, Rank{1}, 1, kStart + 45 * kMs);
  const Finding finding = only_finding(run);
  EXPECT_EQ(finding.code, Code::kDifferentSize);
  EXPECT_EQ(finding.culprits, RankSet{Rank{2}});
  EXPECT_EQ(finding.consequences, 2U);
}

TEST(Judge, ADeathBeforeTheDivergenceComesFirst) {
  const Row row = times(3, {all_reduce("dp", 8)});
  lockstep::Run run = make_run(
      {row + Row{all_reduce("dp", 8).pending()}, row, row + Row{all_reduce("dp", 8).pending()}});
  ends_with_signal(run, Rank{1}, 9, kStart + 40 * kMs);
  hang(run);
  const Finding finding = only_finding(run);
  EXPECT_EQ(finding.code, Code::kRankDied);
  EXPECT_EQ(finding.also, std::vector<Code>{Code::kAbsentRank});
  EXPECT_EQ(finding.culprits, RankSet{Rank{1}});
  EXPECT_EQ(finding.group, "dp");
}

TEST(Judge, LeavingEarlyExplainsTheWait) {
  const Row row = times(3, {all_reduce("dp", 8)});
  lockstep::Run run = make_run(
      {row + Row{all_reduce("dp", 8).pending()}, row, row + Row{all_reduce("dp", 8).pending()}});
  for (const Rank rank : RankSet::all(3))
    ask(run, rank, "step", kStart - kMs, std::nullopt);
  ends_with_status(run, Rank{1}, 0, kStart + 40 * kMs);
  hang(run);
  const Finding finding = only_finding(run);
  EXPECT_EQ(finding.code, Code::kLeftEarly);
  EXPECT_EQ(finding.also, std::vector<Code>{Code::kAbsentRank});
  EXPECT_EQ(finding.culprits, RankSet{Rank{1}});
}

TEST(Judge, AMismatchThatHangsIsTheMismatch) {
  lockstep::Run run = make_run({{all_reduce("dp", 8).pending()},
                                {all_reduce("dp", 8).pending()},
                                {broadcast("dp", 8).pending()}});
  hang(run);
  const Finding finding = only_finding(run);
  EXPECT_EQ(finding.code, Code::kDifferentOp);
  EXPECT_EQ(finding.also, std::vector<Code>{Code::kWaitCycle});
  EXPECT_EQ(finding.culprits, RankSet{Rank{2}});
}

TEST(Judge, TheFirstWrongValueExplainsTheLaterOnes) {
  lockstep::Run run = make_run({{}, {}, {}});
  run.plan.contract["buffers"] = "rank0";
  for (const Rank rank : RankSet::all(3)) {
    observe(run, rank, "param/w", 0, "initial", {1.0 + rank.value});
    observe(run, rank, "buffer/m", 0, "forward_entry/0", {1.0 + rank.value});
    observe(run, rank, "param/w", 0, "after_step", {2.0 + rank.value});
  }
  const Finding finding = only_finding(run);
  EXPECT_EQ(finding.code, Code::kInitialValue);
  EXPECT_EQ(finding.consequences, 2U);
}

TEST(Judge, WrongValuesAfterADivergenceAreItsConsequence) {
  lockstep::Run run =
      make_run({{all_reduce("dp", 8)}, {all_reduce("dp", 8).with(history::ReduceOp::kMax)}});
  for (const Rank rank : RankSet::all(2)) {
    observe(run, rank, "param/w", 0, "after_step", {1.0 + rank.value});
    run.observations.back().at_ns += 100 * kMs;
  }
  const Finding finding = only_finding(run);
  EXPECT_EQ(finding.code, Code::kDifferentReduction);
  EXPECT_EQ(finding.consequences, 1U);
}

TEST(Judge, AWrongValueBeforeAHangIsToldBesidesIt) {
  const Row row = times(3, {all_reduce("dp", 8)});
  lockstep::Run run = make_run({row + Row{all_reduce("dp", 8).pending()}, row});
  for (const Rank rank : RankSet::all(2)) {
    observe(run, rank, "param/w", 0, "initial", {1.0 + rank.value});
    run.observations.back().at_ns = kStart - kMs;
  }
  ends_with_signal(run, Rank{1}, 9, kStart + 40 * kMs);
  hang(run);
  const Judgement judgement = judge(run, all_checkers());
  ASSERT_EQ(judgement.findings.size(), 2U);
  EXPECT_EQ(judgement.findings[0].code, Code::kInitialValue);
  EXPECT_EQ(judgement.findings[1].code, Code::kRankDied);
}

TEST(Judge, WhatWasNotSeenStandsWithTheFindingOnceTheRunIsOver) {
  lockstep::Run run = make_run({{all_reduce("dp", 8)}, {all_reduce("dp", 9)}});
  EXPECT_TRUE(only_finding(run).unseen.empty());
  run.processes[1].closed = false;
  EXPECT_EQ(only_finding(run).unseen,
            std::vector<std::string>{"the history of rank 1 has no closing record"});
  run.live = true;
  EXPECT_TRUE(only_finding(run).unseen.empty()) << "it is being written";
}

class Throws : public Checker {
 public:
  [[nodiscard]] std::string_view name() const override { return "throws"; }
  [[nodiscard]] Verdict check(const lockstep::Job&) const override {
    throw std::runtime_error("oops");
  }
};

TEST(Judge, ACheckerThatThrowsIsUndecided) {
  checkers::Checkers one;
  one.push_back(std::make_unique<Throws>());
  const Judgement judgement = judge({}, one);
  EXPECT_EQ(judgement.outcome, Outcome::kUndecided);
  EXPECT_EQ(judgement.verdicts.at(0).reason, "LS903: the checker throws failed: oops");
  EXPECT_EQ(judgement.verdicts.at(0).lacks, Code::kCheckerFailed);
}

TEST(Judge, AnEmptyRunDecidesNothing) {
  const Judgement judgement = judge({}, all_checkers());
  EXPECT_EQ(judgement.outcome, Outcome::kUndecided);
  EXPECT_TRUE(judgement.findings.empty());
}

TEST(Judge, IsPure) {
  lockstep::Run run = make_run({{all_reduce("dp", 8)}, {all_reduce("dp", 9)}});
  const Finding a = only_finding(run);
  const Finding b = only_finding(run);
  EXPECT_EQ(a.headline, b.headline);
  EXPECT_EQ(texts_of(a.evidence), texts_of(b.evidence));
}

// 8 ranks x 100,000 collectives in under 2 s.
TEST(Judge, Scales) {
  const Row row =
      times(25'000, {all_reduce("dp", 8).at("t.cc", 1), broadcast("dp", 4).at("t.cc", 2),
                     all_reduce("tp", 8).at("t.cc", 3), barrier("dp").at("t.cc", 4)});
  const lockstep::Run run = with_conversation(make_run(std::vector<Row>(8, row)));
  const auto begin = std::chrono::steady_clock::now();
  const Judgement judgement = judge(run, all_checkers());
  const auto took = std::chrono::steady_clock::now() - begin;
  EXPECT_TRUE(judgement.findings.empty());
  const double seconds = std::chrono::duration<double>(took).count();
  RecordProperty("seconds", std::to_string(seconds));
#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
  EXPECT_LT(seconds, 2.0);
#endif
}

}  // namespace
}  // namespace lockstep::testing
