// Goal: batch statistics against those of all ranks' rows. Method: three ranks' normalised rows and
// running values, typed by hand; one is moved at a time.
#include "checkers/values/batch_statistics.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "checkers/judge.h"
#include "tests/support/metamorphic.h"
#include "tests/support/typed_run.h"

namespace lockstep::testing {
namespace {

Verdict check(const lockstep::Run& run) { return checkers::BatchStatistics().check(run); }

using Values = std::vector<double>;

struct Typed {
  std::map<Rank, Values> norm{{Rank{0}, {1, -1}}, {Rank{1}, {0.5, 0.25}}, {Rank{2}, {-0.75, 0}}};
  std::map<Rank, double> mean{{Rank{0}, 3}, {Rank{1}, 3}, {Rank{2}, 3}};
  std::string dtype{"F64"};
  std::int64_t step{};
  bool variants{true};
};

const Typed kRight{};

void add_step(lockstep::Run& run, const Typed& t) {
  const auto observe_reference = [&](const std::string& name, const Values& values,
                                     const std::string& variant, std::optional<Rank> rank,
                                     const std::string& dtype) {
    observe(run, rank, name, t.step, "after_forward/0", values, variant, Role::kReference, dtype);
  };
  for (const auto& [rank, right] : kRight.norm) {
    observe(run, rank, "norm/bn", t.step, "after_forward/0", t.norm.at(rank), "", Role::kRank,
            t.dtype);
    observe(run, rank, "buffer/bn.running_mean", t.step, "after_forward/0", {t.mean.at(rank)}, "",
            Role::kRank, t.dtype);
    observe_reference("norm/bn", right, "", rank, "F64");
    if (t.variants)
      observe_reference("norm/bn", {9, 9}, "statistics/one_rank", rank, "F64");
    // In which this mistake changes nothing: it says nothing about the power here.
    observe_reference("norm/bn", right, "sum", rank, "F64");
    for (int p = 0; p < 4 && t.dtype != "F64"; ++p)
      observe_reference("norm/bn", {right[0] + 1e-7 * p, right[1]}, "x1/" + std::to_string(p), rank,
                        t.dtype);
  }
  observe_reference("buffer/bn.running_mean", {3}, "", std::nullopt, "F64");
  if (t.variants)
    observe_reference("buffer/bn.running_mean", {5}, "statistics/one_rank", std::nullopt, "F64");
  for (int p = 0; p < 4 && t.dtype != "F64"; ++p)
    observe_reference("buffer/bn.running_mean", {3 + 1e-7 * p}, "x1/" + std::to_string(p),
                      std::nullopt, t.dtype);
}

lockstep::Run typed(const std::vector<Typed>& steps) {
  lockstep::Run run =
      make_run({{all_reduce("dp", 5)}, {all_reduce("dp", 5)}, {all_reduce("dp", 5)}});
  run.plan.contract = {{"statistics", "global"}};
  for (const Typed& step : steps)
    add_step(run, step);
  for (Observation& seen : run.observations)
    seen.at_ns += 1000 * kMs;  // After the collectives.
  return run;
}

lockstep::Run healthy() { return typed(std::vector<Typed>(1)); }

Typed with_norm(const std::map<Rank, Values>& wrong, Typed typed = {}) {
  for (const auto& [rank, values] : wrong)
    typed.norm[rank] = values;
  return typed;
}

Typed with_mean(const std::map<Rank, double>& wrong, Typed typed = {}) {
  for (const auto& [rank, value] : wrong)
    typed.mean[rank] = value;
  return typed;
}

const std::map<Rank, Values> kAllWrong{
    {Rank{0}, {1.2, -1.2}}, {Rank{1}, {0.6, 0.3}}, {Rank{2}, {-0.9, 0.1}}};

TEST(BatchStatistics, PassesWithItsPower) {
  const Verdict verdict = check(healthy());
  EXPECT_EQ(verdict.outcome, Outcome::kPass) << verdict.reason;
  ASSERT_EQ(verdict.measures.size(), 2U);
  for (const Measure& measure : verdict.measures) {
    EXPECT_EQ(measure.rule, "double");
    EXPECT_GT(measure.power.value_or(0), 1e6) << measure.name;
  }
}

TEST(BatchStatistics, WrongOnAllRanks) {
  const Verdict verdict = check(typed({with_norm(kAllWrong)}));
  ASSERT_EQ(verdict.findings.size(), 1U);
  EXPECT_EQ(verdict.findings[0].code, Code::kBatchStatistics);
  EXPECT_EQ(verdict.findings[0].names, std::vector<std::string>{"bn"});
  EXPECT_TRUE(verdict.findings[0].culprits.empty());
  EXPECT_EQ(verdict.findings[0].step, 0);
  EXPECT_EQ(verdict.findings[0].headline,
            "bn normalises in step 0 otherwise than one process with all ranks' rows");
}

TEST(BatchStatistics, OfSeveralLayersTheFirstIsNamedAndTheOthersAreCounted) {
  lockstep::Run run = typed({with_norm(kAllWrong)});
  for (Observation seen : std::vector(run.observations)) {
    seen.name = seen.name == "norm/bn" ? "norm/bn2" : "buffer/bn2.running_mean";
    run.observations.push_back(seen);
  }
  const Verdict verdict = check(run);
  ASSERT_EQ(verdict.findings.size(), 1U);
  EXPECT_EQ(verdict.findings[0].names, (std::vector<std::string>{"bn", "bn2"}));
  EXPECT_EQ(verdict.findings[0].headline,
            "bn and 1 more normalise in step 0 otherwise than one process with all ranks' rows");
}

TEST(BatchStatistics, WrongOnAMinority) {
  const Verdict verdict = check(typed({with_norm({{Rank{2}, {0, 0}}})}));
  ASSERT_EQ(verdict.findings.size(), 1U);
  EXPECT_EQ(verdict.findings[0].culprits, RankSet{Rank{2}});
  EXPECT_EQ(verdict.findings[0].affected, (RankSet{Rank{0}, Rank{1}}));
  EXPECT_EQ(verdict.findings[0].headline,
            "bn normalises in step 0 on rank 2 otherwise than one process with all ranks' rows");
  // A rank without rows is no witness: one of two is no minority.
  Typed empty = with_norm({{Rank{2}, {0, 0}}});
  lockstep::Run run = typed({empty});
  const auto with_values = run.tensor;
  run.tensor = [with_values](const Observation& seen) -> Result<Tensor> {
    Result<Tensor> tensor = with_values(seen);
    if (tensor && seen.rank == Rank{0} && seen.name == "norm/bn")
      return Tensor{tensor->dtype, {0}, {}};
    return tensor;
  };
  ASSERT_EQ(check(run).findings.size(), 1U);
  EXPECT_TRUE(check(run).findings[0].culprits.empty());
}

TEST(BatchStatistics, RunningValues) {
  const Verdict verdict =
      check(typed({with_mean({{Rank{0}, 2.7}, {Rank{1}, 2.7}, {Rank{2}, 2.7}})}));
  ASSERT_EQ(verdict.findings.size(), 1U);
  EXPECT_EQ(verdict.findings[0].code, Code::kRunningStatistics);
  EXPECT_EQ(verdict.findings[0].names, std::vector<std::string>{"bn.running_mean"});
  EXPECT_EQ(verdict.findings[0].headline,
            "bn.running_mean after the forward of step 0 is not what one process has from all "
            "ranks' rows");
}

TEST(BatchStatistics, WithinTheTolerance) {
  EXPECT_EQ(check(typed({with_norm({{Rank{1}, {0.5 + 1e-10, 0.25}}})})).outcome, Outcome::kPass);
  EXPECT_EQ(check(typed({with_norm({{Rank{1}, {0.5 + 1e-9, 0.25}}})})).outcome, Outcome::kFail);
  lockstep::Run cancelling = typed({with_norm({{Rank{1}, {0.5 + 1e-9, 0.25}}})});
  cancelling.plan.options["rule"] = "cancelling";
  EXPECT_EQ(check(cancelling).outcome, Outcome::kPass);
  EXPECT_EQ(check(cancelling).measures[0].rule, "cancelling");
  cancelling = typed({with_norm({{Rank{1}, {0.5 + 1e-6, 0.25}}})});
  cancelling.plan.options["rule"] = "cancelling";
  EXPECT_EQ(check(cancelling).outcome, Outcome::kFail);
  EXPECT_EQ(check(typed({with_norm({{Rank{1}, {0.5 + 5e-7, 0.25}}}, {.dtype = "F32"})})).outcome,
            Outcome::kPass);
  EXPECT_EQ(check(typed({with_norm({{Rank{1}, {0.5 + 1e-4, 0.25}}}, {.dtype = "F32"})})).outcome,
            Outcome::kFail);
}

TEST(BatchStatistics, TheFirstOfWhatIsWrong) {
  const Typed second = with_norm(kAllWrong, with_mean({{Rank{0}, 1}, {Rank{1}, 1}, {Rank{2}, 1}}));
  std::vector<Typed> steps{{}, second, second};
  for (std::size_t i = 0; i < steps.size(); ++i)
    steps[i].step = static_cast<std::int64_t>(i);
  const lockstep::Run run = typed(steps);
  ASSERT_EQ(check(run).findings.size(), 2U);
  for (const Finding& finding : check(run).findings) {
    EXPECT_EQ(finding.step, 1);
    EXPECT_EQ(finding.consequences, 1U);
  }
  const auto judged = checkers::judge(run, checkers::all_checkers());
  ASSERT_EQ(judged.findings.size(), 1U);
  EXPECT_EQ(judged.findings[0].code, Code::kBatchStatistics);
}

// What is normalised wrongly comes before the gradient that it makes wrong; a buffer that was not
// broadcast comes before both.
TEST(BatchStatistics, OneDivergenceIsOneFinding) {
  lockstep::Run run = typed({with_norm(kAllWrong)});
  for (const Rank rank : RankSet::all(3))
    observe(run, rank, "grad/w", 0, "after_backward", {2});
  reference(run, "grad/w", 0, {1});
  reference(run, "grad/w", 0, {3}, "sum");
  auto judged = checkers::judge(run, checkers::all_checkers());
  ASSERT_EQ(judged.findings.size(), 1U);
  EXPECT_EQ(judged.findings[0].code, Code::kBatchStatistics);
  run.plan.contract["buffers"] = "rank0";
  for (const Rank rank : RankSet::all(3))
    observe(run, rank, "buffer/bn.running_mean", 0, "forward_entry/0", {1.0 + rank.value});
  judged = checkers::judge(run, checkers::all_checkers());
  ASSERT_EQ(judged.findings.size(), 1U);
  EXPECT_EQ(judged.findings[0].code, Code::kBufferDiffers);
}

TEST(BatchStatistics, CannotDecide) {
  lockstep::Run run = typed(std::vector<Typed>{});
  EXPECT_EQ(check(run).outcome, Outcome::kUndecided) << "nothing was observed";
  run = typed({{.variants = false}});
  EXPECT_EQ(check(run).outcome, Outcome::kUndecided) << "no power";
  EXPECT_NE(check(run).reason.find("power"), std::string::npos);
  const auto without = [](const auto& dropped) {
    lockstep::Run less = healthy();
    less.observations.erase(
        std::remove_if(less.observations.begin(), less.observations.end(), dropped),
        less.observations.end());
    return check(less);
  };
  EXPECT_EQ(without([](const Observation& seen) {
              return seen.role == Role::kRank && seen.rank == Rank{1} && seen.name == "norm/bn";
            }).outcome,
            Outcome::kUndecided);
  EXPECT_EQ(without([](const Observation& seen) {
              return seen.role == Role::kReference && seen.name == "norm/bn";
            }).outcome,
            Outcome::kUndecided);
  EXPECT_EQ(without([](const Observation& seen) { return seen.role == Role::kReference; }).reason,
            "no reference was computed");
  // Off by what float32 may round, and no run of its own type says how much that is here.
  run = typed({with_norm({{Rank{1}, {0.5 + 3e-7, 0.25}}}, {.dtype = "F32"})});
  run.observations.erase(
      std::remove_if(run.observations.begin(), run.observations.end(),
                     [](const Observation& seen) { return seen.variant.rfind("x1/", 0) == 0; }),
      run.observations.end());
  EXPECT_EQ(check(run).outcome, Outcome::kUndecided);
  run = healthy();
  run.tensor = [](const Observation&) -> Result<Tensor> {
    return Error{Error::Kind::kMalformedHistory, "digest differs", ""};
  };
  EXPECT_NE(check(run).reason.find(text_of(Code::kHistoryIncomplete)), std::string::npos);
}

TEST(BatchStatistics, IsNotAskedWhereTheContractDoesNotDeclareIt) {
  lockstep::Run run = typed({with_norm(kAllWrong)});
  run.plan.contract.clear();
  EXPECT_EQ(check(run).outcome, Outcome::kSkipped);
  EXPECT_TRUE(check(run).findings.empty());
}

TEST(BatchStatistics, DeletedRecordsNeverMakeAFindingOrMoveTheBlame) {
  for (const lockstep::Run& run :
       {healthy(), typed({with_norm(kAllWrong)}), typed({with_norm({{Rank{2}, {0, 0}}})}),
        typed({with_mean({{Rank{0}, 2}})})}) {
    for (const std::string& violation : law_violations(run, {.single_max = 60, .subsets = 20}))
      ADD_FAILURE() << violation;
  }
}

}  // namespace
}  // namespace lockstep::testing
