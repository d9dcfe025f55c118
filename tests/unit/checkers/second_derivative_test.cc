// Goal: a missing second derivative is named with its layer, whether it raises or gives a constant
// penalty; a penalty that trains, and an exception of another kind, are not.
#include "checkers/values/second_derivative.h"

#include <gtest/gtest.h>

#include "checkers/exit/rank_failed.h"
#include "checkers/judge.h"
#include "tests/support/metamorphic.h"
#include "tests/support/typed_run.h"

namespace lockstep::testing {
namespace {

Verdict check(const lockstep::Run& run) { return checkers::SecondDerivative().check(run); }

constexpr const char* kTorchs =
    "derivative for (aten::)batch_norm_backward_elemt is not implemented\nException raised from "
    "...";

/// Three ranks and one step with a penalty.
lockstep::Run penalised() {
  const Row calls = times(2, {all_reduce("dp", 3)});
  lockstep::Run run = make_run({calls, calls, calls});
  run.plan.options["penalty"] = "wgan_gp";
  converse(run);
  return run;
}

lockstep::Run with_gradients(const std::vector<double>& w, const std::vector<double>& b) {
  lockstep::Run run = penalised();
  reference(run, "grad/w", 0, {1, 2, 3});
  reference(run, "grad/w", 0, {1, 2, 7}, "penalty_detached");
  reference(run, "grad/b", 0, {5});
  reference(run, "grad/b", 0, {5}, "penalty_detached");  // The penalty does not depend on it.
  for (const Rank rank : RankSet::all(3)) {
    observe(run, rank, "grad/w", 0, "after_backward", w);
    observe(run, rank, "grad/b", 0, "after_backward", b);
  }
  return run;
}

lockstep::Run raising(const std::string& text, const std::string& layer) {
  lockstep::Run run = penalised();
  for (const Rank rank : RankSet::all(3)) {
    Request& step = ask(run, rank, "step", kStart, kStart + 5 * kMs);
    step.outcome = "failed";
    step.text =
        text + "\nautograd node NotImplemented, made by SyncBatchNormBackward; layer " + layer;
  }
  return run;
}

TEST(SecondDerivative, PassesWhereThePenaltyTrains) {
  const Verdict verdict = check(with_gradients({1, 2, 3}, {5}));
  EXPECT_EQ(verdict.outcome, Outcome::kPass) << verdict.reason;
}

TEST(SecondDerivative, NamesLayerAndNodeOfAnException) {
  const Verdict verdict = check(raising(kTorchs, "norm1"));
  ASSERT_EQ(verdict.findings.size(), 1U);
  const Finding& finding = verdict.findings.front();
  EXPECT_EQ(finding.code, Code::kNoSecondDerivative);
  EXPECT_EQ(finding.names, std::vector<std::string>{"norm1"});
  EXPECT_EQ(finding.headline,
            "layer norm1 has no second derivative: derivative for "
            "(aten::)batch_norm_backward_elemt is not implemented");
  EXPECT_EQ(finding.evidence.front().text,
            "the node of the autograd graph: NotImplemented, made by SyncBatchNormBackward");
  EXPECT_TRUE(finding.culprits.empty());
  EXPECT_EQ(finding.affected, RankSet::all(3));
}

TEST(SecondDerivative, OneFindingForOneMistake) {
  // The exception is not told a second time as the end of a rank.
  const auto judgement = checkers::judge(raising(kTorchs, "norm1"), checkers::all_checkers());
  ASSERT_EQ(judgement.findings.size(), 1U);
  EXPECT_EQ(judgement.findings.front().code, Code::kNoSecondDerivative);
}

TEST(SecondDerivative, AnotherExceptionIsTheEndOfARank) {
  const lockstep::Run run = raising("gradient of a bucket is not finite", "");
  EXPECT_TRUE(check(run).findings.empty());
  ASSERT_EQ(checkers::RankFailed().check(run).findings.size(), 1U);
}

TEST(SecondDerivative, WithoutAPenaltyTheTextsMeanSomethingElse) {
  lockstep::Run run =
      raising("element 0 of tensors does not require grad and does not have a grad_fn", "");
  run.plan.options.clear();
  EXPECT_EQ(check(run).outcome, Outcome::kSkipped);
  EXPECT_EQ(checkers::RankFailed().check(run).findings.size(), 1U);
}

TEST(SecondDerivative, AConstantPenaltyDoesNotTrain) {
  const Verdict verdict = check(with_gradients({1, 2, 7}, {5}));
  ASSERT_EQ(verdict.findings.size(), 1U);
  EXPECT_EQ(verdict.findings.front().code, Code::kNoSecondDerivative);
  EXPECT_EQ(verdict.findings.front().names, std::vector<std::string>{"w"});
}

TEST(SecondDerivative, AnotherWrongGradientIsNotItsMatter) {
  EXPECT_EQ(check(with_gradients({1, 2, 7}, {6})).outcome, Outcome::kPass);
  EXPECT_EQ(check(with_gradients({1, 2, 5}, {5})).outcome, Outcome::kPass);
}

TEST(SecondDerivative, CannotDecideWithoutTheLossWithoutPenalty) {
  lockstep::Run run = penalised();
  reference(run, "grad/w", 0, {1, 2, 3});
  observe(run, Rank{0}, "grad/w", 0, "after_backward", {1, 2, 3});
  EXPECT_EQ(check(run).outcome, Outcome::kUndecided);
}

TEST(SecondDerivative, DeletionsNeverMakeAFinding) {
  for (const auto& run : {with_gradients({1, 2, 3}, {5}), with_gradients({1, 2, 7}, {5}),
                          raising(kTorchs, "norm1")}) {
    for (const std::string& violation : law_violations(run))
      ADD_FAILURE() << violation;
  }
}

}  // namespace
}  // namespace lockstep::testing
