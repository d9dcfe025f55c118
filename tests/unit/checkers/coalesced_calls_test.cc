#include "checkers/order/coalesced_calls.h"

#include <gtest/gtest.h>

#include "tests/support/typed_run.h"

namespace lockstep::checkers {
namespace {

using namespace lockstep::testing;  // NOLINT(google-build-using-namespace)

lockstep::Run run_of_two(const std::vector<std::int32_t>& who) {
  lockstep::Run run = make_run({{all_reduce("0", 8)}, {all_reduce("0", 8)}});
  for (const std::int32_t rank : who)
    process_of(run, Rank{rank}).set_aside.push_back({"all_reduce", 5, last_event(run)});
  return run;
}

TEST(SetAside, OneRankIsNamed) {
  const auto findings = calls_set_aside(run_of_two({1}));
  ASSERT_EQ(findings.size(), 1U);
  EXPECT_EQ(findings[0].code, Code::kMissingCall);
  EXPECT_EQ(findings[0].culprits, RankSet{Rank{1}});
  EXPECT_EQ(findings[0].evidence.front().text,
            "rank 1: 5 calls of all_reduce put aside, and never made");
}

TEST(SetAside, AllRanksDidTheSame) {
  const auto findings = calls_set_aside(run_of_two({0, 1}));
  ASSERT_EQ(findings.size(), 1U);
  EXPECT_TRUE(findings[0].culprits.empty());
  EXPECT_EQ(findings[0].affected.size(), 2U);
}

TEST(SetAside, NothingOrAnExceptionThatEndedTheRankIsSilent) {
  EXPECT_TRUE(calls_set_aside(run_of_two({})).empty());
  lockstep::Run run = run_of_two({1});
  raises(run, Rank{1}, "FloatingPointError: not a number", last_event(run) + kMs);
  EXPECT_TRUE(calls_set_aside(run).empty());
}

}  // namespace
}  // namespace lockstep::checkers
