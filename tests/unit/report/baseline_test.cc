// Goal: a gate fails on what is new and on nothing else, and no baseline hides how a job ends.
#include "harness/report/baseline.h"

#include <gtest/gtest.h>

#include "harness/report/json.h"

namespace lockstep {
namespace {

/// The line's number moved and its text did not.
std::string text_of_line(const SiteRef& site) { return site.line < 100 ? "loss.sum()" : "other()"; }

Report failed(Code code, std::int32_t line, std::int32_t program_exit = 0) {
  Report report;
  report.outcome = Outcome::kFail;
  report.exit_status = 1;
  report.program_exit = program_exit;
  report.findings.push_back({.code = code,
                             .headline = "something",
                             .op = "all_reduce",
                             .sites = {{Rank{1}, "culprit", "/a/src/train.py", line, "step"}}});
  return report;
}

std::vector<KnownFinding> baseline_of(const Report& report) {
  return *parse_baseline(render_json(report, text_of_line), "report.json");
}

std::int32_t status_with(Report report, const Report& before) {
  apply_baseline(report, baseline_of(before), text_of_line, {});
  return report.exit_status;
}

TEST(Baseline, ALineThatMovedIsKnown) {
  Report report = failed(Code::kDifferentDtype, 40);
  const BaselineUse use =
      apply_baseline(report, baseline_of(failed(Code::kDifferentDtype, 12)), text_of_line, {});
  EXPECT_EQ(use.known, 1U);
  EXPECT_TRUE(use.gone.empty());
  EXPECT_EQ(report.findings[0].severity, Severity::kNote);
  EXPECT_EQ(report.outcome, Outcome::kPass);
  EXPECT_EQ(report.exit_status, 0);
}

TEST(Baseline, AnotherCodeOrLineIsNew) {
  EXPECT_EQ(status_with(failed(Code::kDifferentSize, 12), failed(Code::kDifferentDtype, 12)), 1);
  EXPECT_EQ(status_with(failed(Code::kDifferentDtype, 140), failed(Code::kDifferentDtype, 12)), 1);
}

TEST(Baseline, AReportOfTheFormatBeforeIsOneAsWell) {
  const auto known_in = [](const std::string& version) {
    std::string text = render_json(failed(Code::kDifferentDtype, 12), text_of_line);
    const std::string now = "lockstep-report/2";
    const auto known = parse_baseline(text.replace(text.find(now), now.size(), version), "a");
    return known ? known->size() : 0;
  };
  EXPECT_EQ(known_in("lockstep-report/2"), 1U);
  EXPECT_EQ(known_in("lockstep-report/1"), 1U);
  EXPECT_EQ(known_in("lockstep-report/3"), 0U);
}

TEST(Baseline, WhatIsNoLongerFoundIsTold) {
  Report report = failed(Code::kDifferentSize, 12);
  const BaselineUse use =
      apply_baseline(report, baseline_of(failed(Code::kDifferentDtype, 12)), text_of_line, {});
  ASSERT_EQ(use.gone.size(), 1U);
  EXPECT_EQ(use.gone[0], "LS203: something");
}

TEST(Baseline, AHangOrACrashStays) {
  for (const Code code :
       {Code::kRankDied, Code::kAbsentRank, Code::kWaitCycle, Code::kUnevenBatches})
    EXPECT_EQ(status_with(failed(code, 12), failed(code, 12)), 1) << text_of(code);
  const Report ended_badly = failed(Code::kDifferentDtype, 12, 134);
  EXPECT_EQ(status_with(ended_badly, ended_badly), 1);
  const Report numbers = failed(Code::kParameterDiffers, 12, 3);
  EXPECT_EQ(status_with(numbers, numbers), 2);
}

TEST(Baseline, ARequiredCheckMustDecideNonetheless) {
  Report report = failed(Code::kDifferentDtype, 12);
  report.checks.push_back({.name = "history", .outcome = Outcome::kUndecided, .reason = "torn"});
  apply_baseline(report, baseline_of(report), text_of_line, {"history"});
  EXPECT_EQ(report.exit_status, 2);
}

TEST(Baseline, WhatIsNoReportIsRefused) {
  EXPECT_FALSE(parse_baseline("{}", "x"));
  EXPECT_FALSE(parse_baseline("[", "x"));
}

}  // namespace
}  // namespace lockstep
