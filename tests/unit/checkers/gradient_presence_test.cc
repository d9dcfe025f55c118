// Goal: a gradient is there where one process has one, and where nobody used a parameter what is
// declared; what was not observed decides nothing.
#include "checkers/values/gradient_presence.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/typed_run.h"

namespace lockstep::testing {
namespace {

Verdict check(const lockstep::Run& run) { return checkers::GradientPresence().check(run); }

/// Two ranks; "w" is used, "v" is not. Which rank has which gradient.
lockstep::Run typed(const std::vector<Rank>& w, const std::vector<Rank>& v,
                    const std::string& unused = "", std::int32_t seen = 2) {
  lockstep::Run run = make_run({{}, {}});
  run.plan.parameters = {{"w", 1}, {"v", 1}};
  if (!unused.empty())
    run.plan.contract["unused"] = unused;
  reference(run, "grad/w", 0, {1});
  for (const Rank rank : w)
    observe(run, rank, "grad/w", 0, "after_backward", {1});
  for (const Rank rank : v)
    observe(run, rank, "grad/v", 0, "after_backward", {0});
  for (std::int32_t rank = 0; rank < seen; ++rank)
    observe(run, Rank{rank}, "param/w", 0, "after_backward", {5});
  return run;
}

const std::vector<Rank> kBoth{Rank{0}, Rank{1}};

TEST(GradientPresence, StaysSilent) {
  EXPECT_EQ(check(typed(kBoth, {})).outcome, Outcome::kPass);
  EXPECT_EQ(check(typed(kBoth, kBoth)).outcome, Outcome::kPass);  // Nothing is declared.
  EXPECT_EQ(check(typed(kBoth, {}, "none")).outcome, Outcome::kPass);
  EXPECT_EQ(check(typed(kBoth, kBoth, "zero")).outcome, Outcome::kPass);
}

TEST(GradientPresence, FiresForZerosThatShouldBeNothing) {
  const Verdict verdict = check(typed(kBoth, {Rank{1}}, "none"));
  ASSERT_EQ(verdict.outcome, Outcome::kFail);
  EXPECT_EQ(verdict.findings.front().code, Code::kGradientWrong);
  EXPECT_EQ(verdict.findings.front().names, std::vector<std::string>{"v"});
  EXPECT_THAT(verdict.findings.front().headline, ::testing::HasSubstr("no rank used it"));
}

TEST(GradientPresence, FiresForNothingThatShouldBeZeros) {
  EXPECT_EQ(check(typed(kBoth, {Rank{0}}, "zero")).outcome, Outcome::kFail);
  EXPECT_EQ(check(typed(kBoth, {}, "zero")).outcome, Outcome::kFail);
}

TEST(GradientPresence, FiresForAGradientThatIsMissing) {
  const Verdict verdict = check(typed({Rank{0}}, {}));
  ASSERT_EQ(verdict.outcome, Outcome::kFail);
  EXPECT_THAT(verdict.findings.front().headline, ::testing::HasSubstr("rank 1"));
}

TEST(GradientPresence, CannotDecideWhatWasNotObserved) {
  EXPECT_EQ(check(typed({Rank{0}}, {}, "none", 1)).outcome, Outcome::kUndecided);
  EXPECT_EQ(check(make_run({{}, {}})).outcome, Outcome::kSkipped);
}

}  // namespace
}  // namespace lockstep::testing
