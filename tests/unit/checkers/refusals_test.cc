// Goal: what a case asks to be refused is, by every rank, and named; an answer that did not come
// decides nothing.
#include "checkers/run/refusals.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/typed_run.h"

namespace lockstep::testing {
namespace {

Verdict check(const lockstep::Run& run) { return checkers::Refusals().check(run); }

/// Two ranks that answer `step` with these outcomes, after one that went well.
lockstep::Run answered(const std::vector<std::string>& outcomes, const std::string& text = "") {
  lockstep::Run run = make_run({{}, {}});
  run.plan.options = {{"refuses", "step"}, {"naming", "'w'"}, {"unfit", "shape"}};
  for (std::size_t rank = 0; rank < outcomes.size(); ++rank) {
    const Rank who{static_cast<std::int32_t>(rank)};
    ask(run, who, "step", kStart, kStart + kMs).outcome = "ok";
    Request& last = ask(run, who, "step", kStart + 2 * kMs, kStart + 3 * kMs);
    last.outcome = outcomes[rank];
    last.text = text;
  }
  return run;
}

TEST(Refusals, StaysSilentWhereAllRefuse) {
  EXPECT_EQ(check(answered({"refused", "refused"}, "parameter 'w' differs")).outcome,
            Outcome::kPass);
  EXPECT_EQ(check(make_run({{}, {}})).outcome, Outcome::kSkipped);
}

TEST(Refusals, NothingIsRefusedWhereTheCaseIsRight) {
  lockstep::Run run = answered({"ok", "refused"}, "a backward is pending\nat a line");
  run.plan.options.clear();
  const Verdict verdict = check(run);
  ASSERT_EQ(verdict.outcome, Outcome::kFail);
  EXPECT_EQ(verdict.findings.front().code, Code::kRefusedInVain);
  EXPECT_EQ(verdict.findings.front().affected, RankSet{Rank{1}});
  EXPECT_EQ(verdict.findings.front().evidence.front().text, "rank 1: a backward is pending");

  run.plan.expected_marks = {"refused"};
  EXPECT_EQ(check(run).outcome, Outcome::kFail);  // Before its time.
  run.marks.push_back({.name = "refused"});
  EXPECT_EQ(check(run).outcome, Outcome::kSkipped);
  run = answered({"ok", "ok"});
  run.plan.options.clear();
  EXPECT_EQ(check(run).outcome, Outcome::kPass);
}

TEST(Refusals, FiresWhereARankAccepts) {
  const Verdict verdict = check(answered({"refused", "ok"}, "'w'"));
  ASSERT_EQ(verdict.outcome, Outcome::kFail);
  EXPECT_EQ(verdict.findings.front().code, Code::kNotRefused);
  EXPECT_EQ(verdict.findings.front().affected, RankSet{Rank{1}});
}

TEST(Refusals, FiresWhereNobodySaysWhat) {
  const Verdict verdict = check(answered({"refused", "refused"}, "something is wrong"));
  ASSERT_EQ(verdict.outcome, Outcome::kFail);
  EXPECT_THAT(verdict.findings.front().headline, ::testing::HasSubstr("no rank names 'w'"));
}

TEST(Refusals, CannotDecideWithoutAnAnswer) {
  EXPECT_EQ(check(answered({"refused"}, "'w'")).outcome, Outcome::kUndecided);
  EXPECT_EQ(check(answered({"refused", "failed"}, "'w'")).outcome, Outcome::kUndecided);
}

}  // namespace
}  // namespace lockstep::testing
