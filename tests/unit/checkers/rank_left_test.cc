// Goal: rank 0 takes the store with it only where it was about to leave; else it is said to live.
#include "checkers/exit/rank_left.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "checkers/exit/rank_failed.h"
#include "tests/support/typed_run.h"

namespace lockstep::testing {
namespace {

const Row kSome = times(2, {all_reduce("dp", 8)});

/// The server closes the connection of who asks for what it cannot do, and its client takes that
/// for a crash.
TEST(Leaving, AStoreWhoseHostGoesOnHasNotCrashed) {
  const auto told = [](const Row& zero, bool fails) {
    lockstep::Run run = make_run({zero, kSome});
    const std::uint64_t at_ns = kStart + 40 * kMs;
    raises(run, Rank{1}, "DistNetworkError: Did the remote server shutdown or crash?", at_ns);
    if (fails)
      raises(run, Rank{0}, "RuntimeError: Connection closed by peer", at_ns + 9 * kMs);
    return checkers::RankFailed().check(run).findings.front();
  };
  for (const bool fails : {false, true}) {
    const Finding lived = told(kSome + times(9, {all_reduce("other", 8).at("t.py", 9)}), fails);
    EXPECT_EQ(lived.code, Code::kRankDied);
    EXPECT_THAT(texts_of(lived.evidence),
                ::testing::Contains(
                    ::testing::HasSubstr("rank 0, which has the store as a rule, had not crashed")))
        << fails;
  }
  EXPECT_EQ(told(kSome, false).code, Code::kLeftEarly) << "it may have been about to leave";
  EXPECT_THAT(texts_of(told(kSome, true).evidence),
              ::testing::Contains(::testing::HasSubstr("it may speak of another rank")));
}

}  // namespace
}  // namespace lockstep::testing
