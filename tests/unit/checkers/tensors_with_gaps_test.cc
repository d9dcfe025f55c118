// Goal: a call on a tensor with gaps is told once for each line, with those who made it; others are
// not. Method: runs typed by hand, with and without the mark of the tap.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "checkers/watch/collective_tensors.h"
#include "tests/support/typed_run.h"

namespace lockstep::testing {
namespace {

using ::testing::HasSubstr;

Call with_gaps(Call call) {
  call.record.gaps = true;
  return call;
}

Verdict check(const lockstep::Run& run) { return checkers::CollectiveTensors().check(run); }

TEST(TensorsWithGaps, AreToldOnceForEachLine) {
  const Call column = with_gaps(all_reduce("dp", 4).at("train.py", 12));
  const Row row = times(3, {column}) + Row{all_reduce("dp", 9).at("train.py", 13)};
  const Verdict verdict = check(make_run({row, row}));
  ASSERT_EQ(verdict.findings.size(), 1U);
  const Finding& finding = verdict.findings.front();
  EXPECT_EQ(finding.code, Code::kTensorWithGaps);
  EXPECT_EQ(finding.severity, Severity::kWarning);
  EXPECT_THAT(finding.headline, HasSubstr("on every rank: Gloo handles its first 4 elements"));
  EXPECT_THAT(finding.evidence.front().text, HasSubstr("6 calls"));
  ASSERT_EQ(finding.sites.size(), 1U);
  EXPECT_EQ(finding.sites.front().line, 12);
  EXPECT_TRUE(finding.culprits.empty());
}

TEST(TensorsWithGaps, OfOneRank) {
  const Call whole = all_reduce("dp", 4).at("train.py", 12);
  const Verdict verdict = check(make_run({{whole}, {with_gaps(whole)}}));
  ASSERT_EQ(verdict.findings.size(), 1U);
  EXPECT_EQ(verdict.findings.front().affected, RankSet{Rank{1}});
}

TEST(TensorsWithGaps, SilentWithoutThem) {
  const Verdict verdict = check(make_run({{all_reduce("dp", 4)}, {all_reduce("dp", 4)}}));
  EXPECT_EQ(verdict.outcome, Outcome::kSkipped);
  EXPECT_TRUE(verdict.findings.empty());
}

}  // namespace
}  // namespace lockstep::testing
