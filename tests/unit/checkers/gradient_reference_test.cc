// Goal: gradients against the reference by the rule of their type; a pass shows that a mistake
// would have been seen.
#include "checkers/values/gradient_reference.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "checkers/values/tolerance.h"
#include "tests/support/typed_run.h"

namespace lockstep::testing {
namespace {

Verdict check(const lockstep::Run& run) { return checkers::GradientReference().check(run); }

const std::vector<double> kW{1, -2, 3};
const std::vector<double> kB{0.5, 0.25};

std::vector<double> scaled(std::vector<double> values, double factor) {
  for (double& value : values)
    value *= factor;
  return values;
}

std::vector<double> shifted(std::vector<double> values, double by) {
  values.back() += by;
  return values;
}

/// Three ranks, two parameters, all right unless `on` says otherwise.
struct Typed {
  std::map<Rank, std::vector<double>> w{}, b{};  ///< Gradients that are not right.
  std::string dtype{"F64"};
  bool variants{true};
};

lockstep::Run typed(const Typed& t) {
  lockstep::Run run = make_run({times(2, {all_reduce("dp", 5)}), times(2, {all_reduce("dp", 5)}),
                                times(2, {all_reduce("dp", 5)})});
  run.plan.parameters = {{"w", 3}, {"b", 2}};
  for (const auto& [name, right] : {std::pair{"grad/w", kW}, std::pair{"grad/b", kB}}) {
    reference(run, name, 0, right);
    if (t.variants)
      reference(run, name, 0, scaled(right, 3), "sum");
    if (t.dtype != "F64") {
      for (int p = 0; p < 4; ++p)
        reference(run, name, 0, shifted(right, 1e-7 * p), "x1/" + std::to_string(p), std::nullopt,
                  t.dtype);
    }
    for (const Rank rank : RankSet::all(3)) {
      const auto& wrong = std::string(name) == "grad/w" ? t.w : t.b;
      const auto place = wrong.find(rank);
      observe(run, rank, name, 0, "after_backward", place == wrong.end() ? right : place->second,
              "", Role::kRank, t.dtype);
    }
  }
  for (Observation& seen : run.observations)
    seen.at_ns += 1000 * kMs;  // After the collectives.
  return run;
}

std::map<Rank, std::vector<double>> on_all(const std::vector<double>& values) {
  return {{Rank{0}, values}, {Rank{1}, values}, {Rank{2}, values}};
}

TEST(GradientReference, PassesWithItsPower) {
  const Verdict verdict = check(typed({}));
  EXPECT_EQ(verdict.outcome, Outcome::kPass) << verdict.reason;
  ASSERT_EQ(verdict.measures.size(), 1U);
  EXPECT_EQ(verdict.measures[0].rule, "double");
  EXPECT_GT(verdict.measures[0].power.value_or(0), 1e6);
}

TEST(GradientReference, CannotDecide) {
  lockstep::Run run = make_run({{}, {}});
  EXPECT_EQ(check(run).outcome, Outcome::kSkipped) << "a program's values are not observed";
  run.plan.scenario = "gradient-equivalence";
  EXPECT_EQ(check(run).outcome, Outcome::kUndecided);
  run = typed({});
  run.observations.pop_back();
  EXPECT_EQ(check(run).outcome, Outcome::kUndecided) << "a rank was not observed";
  run = typed({.variants = false});
  EXPECT_EQ(check(run).outcome, Outcome::kUndecided) << "no power";
  run = typed({});
  reference(run, "grad/w", 0, shifted(kW, 1e-10), "harmless");
  reference(run, "grad/b", 0, kB, "harmless");
  const Verdict weak = check(run);
  EXPECT_EQ(weak.outcome, Outcome::kUndecided);
  EXPECT_NE(weak.reason.find("power"), std::string::npos);
  run = typed({});
  run.tensor = [](const Observation&) -> Result<Tensor> {
    return Error{Error::Kind::kMalformedHistory, "digest differs", ""};
  };
  EXPECT_NE(check(run).reason.find(text_of(Code::kHistoryIncomplete)), std::string::npos);
}

TEST(GradientReference, WrongOnAllRanksAlike) {
  const Finding finding = check(typed({.w = on_all({-2, 1, 3})})).findings.at(0);
  EXPECT_EQ(finding.code, Code::kGradientWrong);
  EXPECT_EQ(finding.names, std::vector<std::string>{"w"});
  EXPECT_TRUE(finding.culprits.empty());
  EXPECT_EQ(finding.affected.size(), 3U);
  EXPECT_EQ(finding.step, 0);
}

TEST(GradientReference, WithinTheTolerance) {
  EXPECT_EQ(check(typed({.w = on_all(shifted(kW, 1e-10))})).outcome, Outcome::kPass);
  EXPECT_EQ(check(typed({.w = on_all(shifted(kW, 1e-9))})).outcome, Outcome::kFail);
}

TEST(GradientReference, OneFactorOverall) {
  const Finding sum =
      check(typed({.w = on_all(scaled(kW, 3)), .b = on_all(scaled(kB, 3))})).findings.at(0);
  EXPECT_EQ(sum.code, Code::kUniformFactor);
  EXPECT_NE(sum.headline.find("3 times the reference: summed"), std::string::npos) << sum.headline;
  const Finding less =
      check(typed({.w = on_all(scaled(kW, 1.5)), .b = on_all(scaled(kB, 1.5))})).findings.at(0);
  EXPECT_EQ(less.code, Code::kUniformFactor);
  EXPECT_NE(less.headline.find("one rank less"), std::string::npos) << less.headline;
  // One of two parameters: not one factor.
  EXPECT_EQ(check(typed({.w = on_all(scaled(kW, 3))})).findings.at(0).code, Code::kGradientWrong);
}

TEST(GradientReference, RanksMustAgreeToTheBit) {
  const Finding finding = check(typed({.w = {{Rank{1}, shifted(kW, 4e-16)}}})).findings.at(0);
  EXPECT_EQ(finding.code, Code::kGradientNotSynchronised);
  EXPECT_EQ(finding.names, std::vector<std::string>{"w"});
  EXPECT_TRUE(finding.culprits.empty()) << "all are within the tolerance of the reference";
  const Finding far = check(typed({.w = {{Rank{1}, scaled(kW, 2)}}})).findings.at(0);
  EXPECT_EQ(far.code, Code::kGradientNotSynchronised);
  EXPECT_EQ(far.culprits, RankSet{Rank{1}});
}

lockstep::Run never_reduced(std::uint64_t reduced) {
  lockstep::Run run = typed({.b = {{Rank{0}, {1, 0}}, {Rank{1}, {0, 1}}, {Rank{2}, {0.5, -0.25}}}});
  for (Process& process : run.processes) {
    process.collectives.pop_back();
    process.groups[0].issued = 1;
    process.collectives[0].numel_in = process.collectives[0].numel_out = reduced;
  }
  return run;
}

TEST(GradientReference, AParameterOutsideEveryBucketIsMissingFromWhatWasReduced) {
  const Finding outside = check(never_reduced(3)).findings.at(0);
  EXPECT_EQ(outside.code, Code::kOutsideBuckets);
  EXPECT_EQ(outside.names, std::vector<std::string>{"b"});
  EXPECT_EQ(check(never_reduced(5)).findings.at(0).code,
            Code::kGradientNotSynchronised);  // It was reduced, and differs.
  lockstep::Run run = never_reduced(3);       // Not the gradients that the ranks have of their own.
  for (const Rank rank : RankSet::all(3))
    reference(run, "grad/b", 0, {7, 7}, "local", rank);
  EXPECT_EQ(check(run).findings.at(0).code, Code::kGradientNotSynchronised);
}

TEST(GradientReference, PerRankReferencesNeedNoEquality) {
  lockstep::Run run = make_run({{}, {}});
  for (const Rank rank : RankSet::all(2)) {
    const std::vector<double> own{1.0 + rank.value};
    reference(run, "grad/w", 0, own, "", rank);
    reference(run, "grad/w", 0, scaled(own, 2), "sum", rank);
    observe(run, rank, "grad/w", 0, "after_backward", own);
  }
  EXPECT_EQ(check(run).outcome, Outcome::kPass) << check(run).reason;
}

TEST(GradientReference, StepsWithoutReferenceAreNotAsked) {
  lockstep::Run run = typed({});
  observe(run, Rank{0}, "grad/w", 1, "after_backward", {7});
  EXPECT_EQ(check(run).outcome, Outcome::kPass) << check(run).reason;
}

TEST(GradientReference, SmallerTypesAreHeldToWhatTheyCan) {
  const Typed right{.w = on_all(shifted(kW, 2e-7)), .dtype = "F32"};
  EXPECT_EQ(check(typed(right)).outcome, Outcome::kPass) << check(typed(right)).reason;
  EXPECT_EQ(check(typed(right)).measures.at(0).rule, "precision");
  EXPECT_EQ(check(typed({.w = on_all(shifted(kW, 1e-4)), .dtype = "F32"})).outcome, Outcome::kFail);
}

TEST(GradientReference, ASmallTypeWithoutARunOfItsOwn) {
  const auto outcome = [](double by) {
    lockstep::Run run = typed({.w = on_all(shifted(kW, by)), .dtype = "BF16"});
    std::erase_if(run.observations,
                  [](const Observation& seen) { return seen.variant.rfind("x1/", 0) == 0; });
    return check(run).outcome;
  };
  EXPECT_EQ(outcome(0.01), Outcome::kPass);  // Within one rounding.
  EXPECT_EQ(outcome(0.1), Outcome::kUndecided);
  EXPECT_EQ(outcome(3), Outcome::kFail);
}

TEST(GradientReference, ExactMeansExact) {
  lockstep::Run run = typed({});
  run.plan.options["rule"] = "exact";
  EXPECT_EQ(check(run).outcome, Outcome::kPass);
  EXPECT_EQ(check(run).measures.at(0).rule, "exact");
  run = typed({.w = on_all(shifted(kW, 4e-16))});
  run.plan.options["rule"] = "exact";
  EXPECT_EQ(check(run).outcome, Outcome::kFail);
}

TEST(Tolerance, SpecialValues) {
  using checkers::distance;
  using checkers::NumberRule;
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  constexpr double kInf = std::numeric_limits<double>::infinity();
  const auto vector = [](std::vector<double> values) {
    return Tensor{"F64", {static_cast<std::int64_t>(values.size())}, std::move(values)};
  };
  EXPECT_EQ(distance(NumberRule::kDouble, vector({kNan, 1}), vector({kNan, 1}), {}).ratio, 0);
  EXPECT_EQ(distance(NumberRule::kDouble, vector({kNan}), vector({1}), {}).ratio, kInf);
  EXPECT_EQ(distance(NumberRule::kDouble, vector({kInf}), vector({kInf}), {}).ratio, 0);
  EXPECT_EQ(distance(NumberRule::kDouble, vector({kInf}), vector({-kInf}), {}).ratio, kInf);
  EXPECT_EQ(distance(NumberRule::kDouble, vector({1}), vector({1, 1}), {}).ratio, kInf);
  EXPECT_EQ(distance(NumberRule::kExact, vector({0.0}), vector({-0.0}), {}).ratio, 0);
  EXPECT_EQ(distance(NumberRule::kDouble, vector({}), vector({}), {}).ratio, 0);
  EXPECT_EQ(distance(NumberRule::kPrecision, vector({0}), vector({0}), {}).ratio, 0);
}

TEST(Tolerance, EachRowHasItsOwn) {
  using checkers::distance;
  using checkers::NumberRule;
  const Tensor reference{"F64", {2, 2}, {1e6, 0, 1, 0}};
  Tensor x = reference;
  x.values[1] = 5e-5;  // Next to a million: tolerated.
  EXPECT_LE(distance(NumberRule::kDouble, x, reference, {}).ratio, 1);
  x.values[3] = 5e-5;  // Next to one: not.
  EXPECT_GT(distance(NumberRule::kDouble, x, reference, {}).ratio, 1e4);
}

}  // namespace
}  // namespace lockstep::testing
