// Goal: a rank that ran out of batches is named where others wait for its next one (LS305), and
// only there; what is judged in a step is judged among the ranks that have a batch for it.
#include "harness/model/batch_plan.h"

#include <gtest/gtest.h>

#include "checkers/hang/deadlock.h"
#include "checkers/judge.h"
#include "checkers/values/gradient_reference.h"
#include "checkers/values/replica_equality.h"
#include "tests/support/uneven_run.h"

namespace lockstep::testing {
namespace {

Finding only_finding(const lockstep::Run& run) {
  const checkers::Judgement judged = checkers::judge(run, checkers::all_checkers());
  EXPECT_EQ(judged.findings.size(), 1U);
  return judged.findings.empty() ? Finding{} : judged.findings.front();
}

Code deadlock_code(const lockstep::Run& run) {
  const Verdict verdict = checkers::Deadlock().check(run);
  return verdict.findings.empty() ? Code::kNone : verdict.findings.front().code;
}

TEST(UnevenBatches, TheRankThatRanOutIsNamedOnTwoRanksToo) {
  const Finding finding = only_finding(uneven_run({5, 3}));
  EXPECT_EQ(finding.code, Code::kUnevenBatches);
  EXPECT_EQ(finding.headline.rfind("rank 1 ran 3 of 5 batches; its loader ended", 0), 0U)
      << finding.headline;
  EXPECT_EQ(finding.culprits, RankSet{Rank{1}});
  EXPECT_EQ(finding.affected, RankSet{Rank{0}});
  EXPECT_EQ(finding.confidence, Confidence::kCertain);
  EXPECT_EQ(finding.also, std::vector<Code>{Code::kAbsentRank});
  EXPECT_EQ(finding.seq, 6U);
}

TEST(UnevenBatches, SeveralMayHaveRunOutAndOneAtOnce) {
  EXPECT_EQ(only_finding(uneven_run({2, 12, 2})).culprits, (RankSet{Rank{0}, Rank{2}}));
  EXPECT_EQ(only_finding(uneven_run({2, 12, 2})).code, Code::kUnevenBatches);
  const Finding nothing = only_finding(uneven_run({4, 0}));
  EXPECT_EQ(nothing.code, Code::kUnevenBatches);
  EXPECT_EQ(nothing.culprits, RankSet{Rank{1}});
}

TEST(UnevenBatches, EvenOnesThatGoToTheirEndAreHealthy) {
  lockstep::Run run = make_run({times(6, {all_reduce("dp", 8)}), times(6, {all_reduce("dp", 8)})});
  run.plan.scenario = "uneven-batches";
  run.plan.batches = {5, 3};  // Shadowed: the same calls on both.
  EXPECT_EQ(checkers::Deadlock().check(run).outcome, Outcome::kPass);
}

TEST(UnevenBatches, AnotherReasonToWaitIsNotTakenForIt) {
  lockstep::Run run = uneven_run({5, 3});
  run.plan.batches = {5, 4};
  EXPECT_EQ(deadlock_code(run), Code::kAbsentRank) << "it has a batch left";
  run = uneven_run({5, 3});
  run.plan.batches.clear();
  EXPECT_EQ(deadlock_code(run), Code::kAbsentRank) << "nothing is known of batches";
  run = uneven_run({5, 3});
  run.plan.scenario.clear();
  EXPECT_EQ(deadlock_code(run), Code::kAbsentRank) << "not the suite";
  run = uneven_run({5, 3});
  for (Request& request : run.requests) {
    if (request.message == "exhausted")
      request.message = "state";
  }
  EXPECT_EQ(deadlock_code(run), Code::kAbsentRank) << "it was not told that there are no more";
}

TEST(UnevenBatches, ACallThatWasLeftOutBeforeIsNotTakenForIt) {
  // Rank 1 left out its last call: what rank 0 waits in belongs to a batch that both had.
  lockstep::Run run = uneven_run({5, 3});
  Process& rank_0 = process_of(run, Rank{0});
  Process& rank_1 = process_of(run, Rank{1});
  rank_0.collectives.pop_back();
  rank_0.collectives.back().completed_ns.reset();
  rank_1.collectives.pop_back();
  for (Process* process : {&rank_0, &rank_1})
    --process->groups[0].issued;
  for (StateSample& sample : run.states)
    --sample.head;
  EXPECT_NE(deadlock_code(run), Code::kUnevenBatches);
}

TEST(UnevenBatches, DifferentCallsBeforeAreNotTakenForIt) {
  lockstep::Run run = uneven_run({5, 3});
  process_of(run, Rank{1}).collectives[1].numel_in = 9;
  EXPECT_NE(deadlock_code(run), Code::kUnevenBatches);
}

TEST(UnevenBatches, WithoutTheJournalNobodyIsNamed) {
  lockstep::Run run = uneven_run({5, 3});
  run.journal_complete = false;
  for (const Finding& finding : checkers::judge(run, checkers::all_checkers()).findings) {
    EXPECT_NE(finding.code, Code::kUnevenBatches);
    EXPECT_TRUE(finding.culprits.empty());
  }
}

// ---- Values.

lockstep::Run two_of_three(const std::vector<double>& rank_0, const std::vector<double>& rank_1) {
  lockstep::Run run = make_run({{}, {}, {}});
  run.plan.batches = {2, 2, 1};
  run.plan.contract["buffers"] = "rank0";
  for (const std::int32_t step : {0, 1}) {
    for (std::int32_t rank = 0; rank < (step == 0 ? 3 : 2); ++rank)
      observe(run, Rank{rank}, "grad/w", step, "after_backward",
              step == 0 ? std::vector<double>{1, 2} : (rank == 0 ? rank_0 : rank_1));
    reference(run, "grad/w", step, {1, 2});
    reference(run, "grad/w", step, {3, 6}, "sum");
  }
  return run;
}

TEST(UnevenBatches, GradientsAreJudgedAmongThoseThatHaveABatch) {
  EXPECT_EQ(checkers::GradientReference().check(two_of_three({1, 2}, {1, 2})).outcome,
            Outcome::kPass);
  const Verdict half = checkers::GradientReference().check(two_of_three({2, 4}, {2, 4}));
  ASSERT_EQ(half.findings.size(), 1U);
  EXPECT_EQ(half.findings[0].code, Code::kUniformFactor) << "a factor of this step alone";
  const Verdict one = checkers::GradientReference().check(two_of_three({1, 2}, {2, 1}));
  ASSERT_EQ(one.findings.size(), 1U);
  EXPECT_TRUE(one.findings[0].culprits.empty()) << "one of two is no minority";
}

TEST(UnevenBatches, BuffersAreTheLargestRanksThatHasABatch) {
  const auto entry = [](double rank_0) {
    lockstep::Run run = make_run({{}, {}, {}});
    run.plan.batches = {2, 2, 1};
    run.plan.contract["buffers"] = "rank0";
    for (const std::int32_t rank : {0, 1}) {
      observe(run, Rank{rank}, "buffer/m", 0, "after_backward", {7.0 + rank});
      observe(run, Rank{rank}, "buffer/m", 1, "forward_entry/0", {rank == 0 ? rank_0 : 8.0});
    }
    return checkers::ReplicaEquality().check(run);
  };
  EXPECT_EQ(entry(8).outcome, Outcome::kPass) << entry(8).reason;
  const Verdict stale = entry(7);
  ASSERT_EQ(stale.findings.size(), 1U);
  EXPECT_EQ(stale.findings[0].code, Code::kBufferDiffers);
  EXPECT_NE(stale.findings[0].headline.find("rank 1's"), std::string::npos);
}

TEST(UnevenBatches, AllHoldOneStateInTheEnd) {
  const auto joined = [](double rank_2, bool seen_on_rank_0 = true) {
    lockstep::Run run = make_run({{}, {}, {}});
    run.plan.batches = {2, 2, 1};
    run.plan.contract["buffers"] = "rank0";
    for (const char* name : {"param/w", "buffer/m"}) {
      for (std::int32_t rank = seen_on_rank_0 ? 0 : 1; rank < 3; ++rank)
        observe(run, Rank{rank}, name, 2, "joined", {rank == 2 ? rank_2 : 1.0});
    }
    return checkers::ReplicaEquality().check(run);
  };
  EXPECT_EQ(joined(1).outcome, Outcome::kPass);
  EXPECT_EQ(joined(1, false).outcome, Outcome::kUndecided);
  const Verdict stale = joined(2);
  ASSERT_EQ(stale.findings.size(), 2U);
  EXPECT_EQ(stale.findings[0].culprits, RankSet{Rank{2}});
}

}  // namespace
}  // namespace lockstep::testing
