// Goal: LS509. Buckets are filled to their limit and no further, each with one type, and hold every
// parameter once; before the second step only the first parameter must not come first.
#include "checkers/values/bucket_layout.h"

#include <gtest/gtest.h>

#include "tests/support/metamorphic.h"
#include "tests/support/typed_run.h"

namespace lockstep::testing {
namespace {

using Rows = std::vector<double>;  // Bucket, parameter, bytes, type.

// Limits of 16 bytes first and 32 then; three parameters of 16 bytes and one of 8 of another type.
lockstep::Run told(std::int64_t step, const Rows& of_rank_0, const Rows& of_rank_1) {
  lockstep::Run run = make_run({Row{}, Row{}});
  converse(run);
  run.plan.options = {{"bucket_cap_bytes", "32"}, {"first_bucket_bytes", "16"}};
  run.plan.parameters = {{"a", 2}, {"b", 2}, {"c", 2}, {"d", 4}};
  observe(run, Rank{0}, "buckets", step, "micro/0", of_rank_0);
  observe(run, Rank{1}, "buckets", step, "micro/0", of_rank_1);
  return run;
}

const Rows kRight{0, 2, 16, 7, 1, 1, 16, 7, 1, 0, 16, 7, 2, 3, 8, 15};

std::string headline(const Rows& rows, std::int64_t step = 1) {
  const Verdict verdict = checkers::BucketLayout().check(told(step, kRight, rows));
  if (verdict.findings.empty())
    return verdict.outcome == Outcome::kPass ? "" : "undecided";
  EXPECT_EQ(verdict.findings.front().code, Code::kBucketLayout);
  EXPECT_EQ(verdict.findings.front().affected, RankSet{Rank{1}});
  return verdict.findings.front().headline;
}

TEST(BucketLayout, PassesWhatIsFilledToItsLimit) {
  EXPECT_EQ(headline(kRight), "");
  EXPECT_EQ(checkers::BucketLayout().check(told(1, kRight, kRight)).examined.at("buckets"), 6U);
}

TEST(BucketLayout, FindsWhatIsNot) {
  EXPECT_EQ(headline({0, 2, 16, 7, 0, 1, 16, 7, 1, 0, 16, 7, 2, 3, 8, 15}),
            "bucket 0 was full at 16 of 16 bytes, and b was added to it");
  EXPECT_EQ(headline({0, 2, 16, 7, 1, 1, 16, 7, 2, 0, 16, 7, 3, 3, 8, 15}),
            "bucket 2 was closed at 16 of 32 bytes, and is not the last of its type");
  EXPECT_EQ(headline({0, 2, 16, 7, 1, 1, 16, 7, 1, 3, 8, 15}),
            "bucket 1 holds parameters of two types");
  EXPECT_EQ(headline({0, 2, 16, 7, 1, 1, 16, 7, 2, 3, 8, 15}), "a is in 0 buckets");
  EXPECT_EQ(headline({0, 2, 16, 7, 1, 1, 16, 7, 1, 1, 16, 7, 2, 0, 16, 7, 3, 3, 8, 15}),
            "b is in 2 buckets");
}

TEST(BucketLayout, TheFirstStepHasOtherBuckets) {
  EXPECT_EQ(headline({0, 3, 8, 15, 1, 0, 16, 7, 1, 1, 16, 7, 1, 2, 16, 7}, 0), "");
  EXPECT_EQ(headline({0, 3, 8, 15, 1, 0, 16, 7, 1, 1, 16, 7}, 0), "c is in 0 buckets");
  EXPECT_EQ(headline({0, 0, 16, 7, 0, 1, 16, 7, 0, 2, 16, 7, 1, 3, 8, 15}, 0),
            "bucket 0 holds a before the first backward, whose gradient comes last");
}

TEST(BucketLayout, SkipsWhatIsNotToldAndCannotDecideWhatIsNotRead) {
  lockstep::Run run = told(1, kRight, kRight);
  run.tensor = nullptr;
  EXPECT_EQ(checkers::BucketLayout().check(run).outcome, Outcome::kUndecided);
  run.observations.clear();
  EXPECT_EQ(checkers::BucketLayout().check(run).outcome, Outcome::kSkipped);
  run.plan.options.clear();
  EXPECT_EQ(checkers::BucketLayout().check(run).outcome, Outcome::kSkipped);
}

TEST(BucketLayout, DeletionsNeverMakeAFinding) {
  for (const std::string& violation : law_violations(told(1, kRight, kRight)))
    ADD_FAILURE() << violation;
}

}  // namespace
}  // namespace lockstep::testing
