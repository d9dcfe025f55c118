// Rings that overflowed: what is still there is judged, what is gone is compared by digests.
#include <gtest/gtest.h>

#include "checkers/order/collective_order.h"
#include "tests/support/typed_run.h"

namespace lockstep::testing {
namespace {

Verdict check(const lockstep::Run& run) { return checkers::CollectiveOrder().check(run); }

lockstep::Run overflowed(std::size_t kept, std::size_t odd_one) {
  const std::size_t count = 10'000;
  Row right = times(count, {all_reduce("dp", 8)});
  Row wrong = right;
  wrong[odd_one] = all_reduce("dp", 9);
  lockstep::Run run = make_run({right, wrong, right});
  for (Process& process : run.processes) {
    process.dropped = count - kept;
    process.collectives.erase(process.collectives.begin(),
                              process.collectives.end() - static_cast<std::ptrdiff_t>(kept));
  }
  return run;
}

TEST(CollectiveOrder, ADivergenceStillInTheRingIsBlamedIfDigestsVouchForTheRest) {
  const Verdict verdict = check(overflowed(3000, 9'500));
  ASSERT_EQ(verdict.findings.size(), 1U);
  const Finding& finding = verdict.findings.front();
  EXPECT_EQ(finding.seq, 9'500U);
  EXPECT_EQ(finding.culprits, RankSet{Rank{1}});
}

TEST(CollectiveOrder, AnOverwrittenDivergenceIsLocatedAndUndecided) {
  const Verdict verdict = check(overflowed(3000, 2'500));
  EXPECT_EQ(verdict.outcome, Outcome::kUndecided);
  EXPECT_NE(verdict.reason.find("dp#2048 to #3071"), std::string::npos) << verdict.reason;
}

TEST(CollectiveOrder, AnOverflowedHealthyRunPasses) {
  const Row row = times(5'000, {all_reduce("dp", 8)});
  lockstep::Run run = make_run({row, row});
  for (Process& process : run.processes) {
    process.dropped = 3'000;
    process.collectives.erase(process.collectives.begin(), process.collectives.begin() + 3'000);
  }
  EXPECT_EQ(check(run).outcome, Outcome::kPass) << check(run).reason;
}

}  // namespace
}  // namespace lockstep::testing
