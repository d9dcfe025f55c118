// Goal: sizes that do not add up name nobody, unless the call itself told one rank that what it
// gave was wrong whatever the others gave.
#include <gtest/gtest.h>

#include "checkers/order/collective_order.h"
#include "tests/support/typed_run.h"

namespace lockstep::testing {
namespace {

Finding only_finding(const lockstep::Run& run) {
  const Verdict verdict = checkers::CollectiveOrder().check(run);
  EXPECT_EQ(verdict.findings.size(), 1U);
  return verdict.findings.empty() ? Finding{} : verdict.findings.front();
}

TEST(OwnSplits, WhoseTheCallItselfRefusedIsNamed) {
  const Call exchange = call(history::Op::kAllToAllSingle, "dp", 4, 4).at("train.py", 10);
  const auto refused = [&](const std::vector<std::int32_t>& ranks, const std::string& text) {
    lockstep::Run run = make_run({{exchange.failed()}, {exchange.sizes(3, 4).failed()}});
    for (const std::int32_t rank : ranks)
      raises(run, Rank{rank}, text, last_event(run) + kMs);
    return run;
  };
  const std::string own = "RuntimeError: Split sizes doesn't match total dim 0 size";
  const Finding finding = only_finding(refused({1}, own));
  EXPECT_EQ(finding.code, Code::kDifferentSize);
  EXPECT_EQ(finding.culprits, RankSet{Rank{1}});
  EXPECT_EQ(finding.affected, RankSet{Rank{0}});
  EXPECT_EQ(finding.sites.front().role, "culprit");
  EXPECT_TRUE(only_finding(refused({0, 1}, own)).culprits.empty());
  EXPECT_TRUE(only_finding(refused({1}, "ValueError: no")).culprits.empty());
  lockstep::Run run = refused({1}, own);
  run.journal_complete = false;
  EXPECT_TRUE(only_finding(run).culprits.empty());
}

}  // namespace
}  // namespace lockstep::testing
