// Goal: a pass needs an explanation for each rank that did not end well; what the user did or asked
// for comes before what nobody explains.
#include <gtest/gtest.h>

#include "harness/session/job_report.h"
#include "harness/verdict/exit_codes.h"
#include "tests/support/typed_run.h"

namespace lockstep::testing {
namespace {

using session::job_report;

lockstep::Run healthy() {
  const Row row = times(3, {all_reduce("dp", 8)});
  return make_run({row, row});
}

void expect(const Report& report, Outcome outcome, ExitCode code, const std::string& reason) {
  EXPECT_EQ(report.outcome, outcome);
  EXPECT_EQ(report.exit_status, status_of(code));
  EXPECT_EQ(report.reason, reason);
}

TEST(Conclude, AJobThatWentWellPasses) {
  const Report report = job_report(healthy());
  expect(report, Outcome::kPass, ExitCode::kNothingFound, "");
  EXPECT_EQ(report.program_exit, 0);
  EXPECT_EQ(report.ranks.size(), 2U);
}

TEST(Conclude, AFindingFails) {
  lockstep::Run run = make_run({{all_reduce("a", 8).pending()}, {all_reduce("b", 8).pending()}});
  hang(run);
  const Report report = job_report(run);
  expect(report, Outcome::kFail, ExitCode::kFinding, "");
  EXPECT_EQ(report.findings.size(), 1U);
}

TEST(Conclude, AnInterruptDecidesNothing) {
  lockstep::Run run = healthy();
  run.acted.push_back(
      {.at_ns = last_event(run) + kMs, .action = "interrupted", .reason = "SIGINT"});
  expect(job_report(run), Outcome::kUndecided, ExitCode::kInterrupted, "interrupted (SIGINT)");
}

TEST(Conclude, WithoutARankNothingIsJudged) {
  lockstep::Run run;
  run.starts.push_back({.at_ns = kStart, .role = Role::kOther, .pid = 900});
  run.ends.push_back({.at_ns = kStart + kMs, .role = Role::kOther, .pid = 900, .exit_status = 0});
  run.journal_complete = true;
  Report report = job_report(run);
  expect(report, Outcome::kSkipped, ExitCode::kNothingFound, "");
  EXPECT_EQ(report.unseen, "no rank was seen, so nothing of one was judged");
  run.ends.front().exit_status = 3;
  report = job_report(run);
  expect(report, Outcome::kUndecided, ExitCode::kNoRank,
         "the command ended with status 3, and no process of it became a rank");
}

TEST(Conclude, ARequiredCheckMustDecide) {
  lockstep::Run run = healthy();
  run.plan.required_checks = {"sampler-shards"};
  const Report report = job_report(run);
  EXPECT_EQ(report.outcome, Outcome::kUndecided);
  EXPECT_EQ(report.exit_status, status_of(ExitCode::kUndecided));
  EXPECT_EQ(report.reason.rfind("sampler-shards: ", 0), 0U) << report.reason;
}

TEST(Conclude, ACommandThatFailedAlthoughAllRanksEndedWellIsUnexplained) {
  lockstep::Run run = healthy();
  run.starts.push_back({.at_ns = kStart / 8, .role = Role::kOther, .pid = 900});
  run.ends.push_back(
      {.at_ns = last_event(run) + 90 * kMs, .role = Role::kOther, .pid = 900, .exit_status = 4});
  expect(job_report(run), Outcome::kUndecided, ExitCode::kUndecided,
         "the command ended with status 4, and no rank explains it");
}

}  // namespace
}  // namespace lockstep::testing
