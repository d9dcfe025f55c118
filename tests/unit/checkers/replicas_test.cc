// Goal: what is judged of replicas within one process: how their losses are weighed, whose buffers
// the module keeps, and what memory the first one holds beyond the others.
#include <gtest/gtest.h>

#include "checkers/values/buffer_overwrite.h"
#include "checkers/values/loss_weighting.h"
#include "checkers/values/replica_memory.h"
#include "tests/support/metamorphic.h"
#include "tests/support/typed_run.h"

namespace lockstep::testing {
namespace {

lockstep::Run one_process() {
  lockstep::Run run = make_run({Row{}});
  run.plan.dtype = "float64";
  converse(run);
  return run;
}

// Two parts of different size: the mean over all samples is 0.4, that over the parts 0.45.
lockstep::Run with_loss(double loss, const std::string& declared) {
  lockstep::Run run = one_process();
  run.plan.contract["gradient"] = declared;
  const bool samples = declared == "global_sample_mean";
  for (std::int64_t step = 0; step < 2; ++step) {
    reference(run, "loss", step, {samples ? 0.4 : 0.45});
    reference(run, "loss", step, {samples ? 0.45 : 0.4},
              samples ? "mean_of_rank_means" : "global_sample_mean");
    observe(run, Rank{0}, "loss", step, "micro/0", {loss});
  }
  return run;
}

Verdict weighting(const lockstep::Run& run) { return checkers::LossWeighting().check(run); }

TEST(LossWeighting, PassesAsDeclaredAndTellsTheDifference) {
  for (const auto& [loss, declared] :
       {std::pair{0.4, "global_sample_mean"}, std::pair{0.45, "mean_of_rank_means"}}) {
    const Verdict verdict = weighting(with_loss(loss, declared));
    EXPECT_EQ(verdict.outcome, Outcome::kPass) << verdict.reason;
    ASSERT_EQ(verdict.measures.size(), 1U);
    EXPECT_NEAR(verdict.measures.front().value, 0.05, 1e-12);
  }
}

TEST(LossWeighting, FindsTheOtherWeights) {
  const Verdict verdict = weighting(with_loss(0.45, "global_sample_mean"));
  ASSERT_EQ(verdict.findings.size(), 1U);
  EXPECT_EQ(verdict.findings.front().code, Code::kLossWeighting);
  EXPECT_EQ(verdict.findings.front().step, 0);
  EXPECT_EQ(verdict.findings.front().headline,
            "the loss of step 0 is the plain mean of the parts' means, declared is the mean over "
            "all samples");
  EXPECT_EQ(weighting(with_loss(0.4, "mean_of_rank_means")).findings.size(), 1U);
}

TEST(LossWeighting, CannotDecideWhatIsNeither) {
  const Verdict verdict = weighting(with_loss(0.7, "global_sample_mean"));
  EXPECT_EQ(verdict.outcome, Outcome::kUndecided);
  EXPECT_TRUE(verdict.findings.empty());
}

TEST(LossWeighting, SkipsWhatItDoesNotAskAbout) {
  lockstep::Run several = with_loss(0.45, "global_sample_mean");
  several.plan.world_size = 3;
  EXPECT_EQ(weighting(several).outcome, Outcome::kSkipped);
  lockstep::Run equal = one_process();
  equal.plan.contract["gradient"] = "global_sample_mean";
  reference(equal, "loss", 0, {0.4});
  observe(equal, Rank{0}, "loss", 0, "micro/0", {0.45});
  EXPECT_EQ(weighting(equal).outcome, Outcome::kSkipped);
}

// The forward leaves `left` in the buffer; the module has `kept` after the step.
lockstep::Run with_buffers(double left, double kept) {
  lockstep::Run run = one_process();
  run.plan.contract["buffers"] = "rank0";
  for (std::int64_t step = 0; step < 2; ++step) {
    observe(run, Rank{0}, "buffer/mean", step, "forward_entry/0", {0});
    observe(run, Rank{0}, "buffer/mean", step, "after_forward/0", {left});
    observe(run, Rank{0}, "buffer/mean", step, "after_backward", {kept});
  }
  return run;
}

Verdict kept(const lockstep::Run& run) { return checkers::BufferOverwrite().check(run); }

TEST(BufferOverwrite, PassesWhereTheForwardsBuffersStay) {
  EXPECT_EQ(kept(with_buffers(1, 1)).outcome, Outcome::kPass);
}

TEST(BufferOverwrite, FindsBuffersOfSomebodyElse) {
  const Verdict verdict = kept(with_buffers(1, 3));
  ASSERT_EQ(verdict.findings.size(), 1U);
  const Finding& finding = verdict.findings.front();
  EXPECT_EQ(finding.code, Code::kBufferDiffers);
  EXPECT_EQ(finding.names, std::vector<std::string>{"mean"});
  EXPECT_EQ(finding.headline, "mean is not what the forward of step 0 has left");
  EXPECT_EQ(finding.evidence.front().text,
            "mean: rank 0 holds another value than its forward has left, by up to 2");
  EXPECT_EQ(finding.consequences, 1U);
}

TEST(BufferOverwrite, TheLastForwardCounts) {
  lockstep::Run run = one_process();
  run.plan.contract["buffers"] = "rank0";
  observe(run, Rank{0}, "buffer/mean", 0, "after_forward/0", {1});
  observe(run, Rank{0}, "buffer/mean", 0, "after_forward/1", {2});
  observe(run, Rank{0}, "buffer/mean", 0, "after_backward", {2});
  EXPECT_EQ(kept(run).outcome, Outcome::kPass);
}

TEST(BufferOverwrite, CannotDecideWhereTheLastForwardMayBeMissing) {
  lockstep::Run run = with_buffers(1, 3);
  run.journal_complete = false;
  EXPECT_EQ(kept(run).outcome, Outcome::kUndecided);
  lockstep::Run undeclared = with_buffers(1, 3);
  undeclared.plan.contract.clear();
  EXPECT_EQ(kept(undeclared).outcome, Outcome::kSkipped);
}

TEST(ReplicaMemory, TellsTheExcessOfTheFirst) {
  lockstep::Run run = one_process();
  observe(run, Rank{0}, "memory/peak", 0, "micro/0", {1000, 300, 200});
  observe(run, Rank{0}, "memory/peak", 1, "micro/0", {900, 300, 200});
  const Verdict verdict = checkers::ReplicaMemory().check(run);
  EXPECT_EQ(verdict.outcome, Outcome::kPass);
  ASSERT_EQ(verdict.measures.size(), 1U);
  EXPECT_EQ(verdict.measures.front().value, 700);
  EXPECT_EQ(verdict.measures.front().unit, "bytes");
}

lockstep::Run declared_balanced(double first) {
  lockstep::Run run = one_process();
  run.plan.contract["memory"] = "balanced";
  observe(run, Rank{0}, "memory/peak", 0, "micro/0", {1000, 1000, 900});
  observe(run, Rank{0}, "memory/peak", 1, "micro/0", {first, 1000, 900});
  return run;
}

TEST(ReplicaMemory, WhatIsDeclaredBalancedIsJudged) {
  EXPECT_EQ(checkers::ReplicaMemory().check(declared_balanced(1200)).outcome, Outcome::kPass);
  const Verdict verdict = checkers::ReplicaMemory().check(declared_balanced(2000));
  ASSERT_EQ(verdict.findings.size(), 1U);
  EXPECT_EQ(verdict.findings.front().code, Code::kMemoryImbalance);
  EXPECT_EQ(verdict.findings.front().headline,
            "replica 0 holds 2000 bytes at its peak in step 1, any other at most 1000");
}

TEST(ReplicaMemory, WhoeverComputesHoldsSomething) {
  lockstep::Run run = one_process();
  observe(run, Rank{0}, "memory/peak", 0, "micro/0", {1000, 300, 0});
  const Verdict verdict = checkers::ReplicaMemory().check(run);
  ASSERT_EQ(verdict.findings.size(), 1U);
  EXPECT_EQ(verdict.findings.front().headline, "replica 2 was not seen to hold a byte in step 0");
}

TEST(ReplicaMemory, UnreadValuesAreUndecidedAndNoneAreSkipped) {
  lockstep::Run run = one_process();
  EXPECT_EQ(checkers::ReplicaMemory().check(run).outcome, Outcome::kSkipped);
  observe(run, Rank{0}, "memory/peak", 0, "micro/0", {1000, 300});
  run.tensor = nullptr;
  EXPECT_EQ(checkers::ReplicaMemory().check(run).outcome, Outcome::kUndecided);
}

TEST(ReplicasLaw, DeletionsNeverMakeAFinding) {
  for (const auto& run :
       {with_loss(0.4, "global_sample_mean"), with_loss(0.45, "global_sample_mean"),
        with_buffers(1, 1), with_buffers(1, 3), declared_balanced(1200), declared_balanced(2000)}) {
    for (const std::string& violation : law_violations(run))
      ADD_FAILURE() << violation;
  }
}

}  // namespace
}  // namespace lockstep::testing
