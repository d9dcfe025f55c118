// Goal: sizes that do not add up name nobody, unless the call itself told one rank that what it
// gave was wrong whatever the others gave; splits of an all-to-all that fit in sum must fit pair by
// pair, too.
#include <gtest/gtest.h>

#include "checkers/order/collective_order.h"
#include "harness/history/format.h"
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

/// Of a rank: what it sends to each, and what it receives from each.
Call exchanges(const std::vector<std::uint64_t>& to, const std::vector<std::uint64_t>& from) {
  Call made = call(history::Op::kAllToAllSingle, "dp", 0, 0).at("train.py", 10);
  Collective::Exchange exchange;
  for (std::size_t i = 0; i < to.size(); ++i) {
    exchange.sent += history::share_of_receiver(i) * to[i];
    exchange.received += history::share_of_sender(i) * from[i];
    made.record.numel_in += to[i];
    made.record.numel_out += from[i];
  }
  made.record.exchange = exchange;
  made.record.shares_told = true;
  return made;
}

TEST(Splits, ThatFitInSumOnlyAreWrongAndNameNobody) {
  const lockstep::Run run = make_run({{exchanges({1, 1, 1}, {1, 2, 3})},
                                      {exchanges({2, 2, 2}, {1, 2, 3})},
                                      {exchanges({3, 3, 3}, {2, 1, 3})}});
  const Finding finding = only_finding(run);
  EXPECT_EQ(finding.code, Code::kDifferentSize);
  EXPECT_TRUE(finding.culprits.empty());
  EXPECT_EQ(finding.sites.size(), 3U);
}

TEST(Splits, ThatFitPairByPairAreRight) {
  std::vector<std::vector<Call>> ranks = {{exchanges({0, 5, 1}, {0, 2, 0})},
                                          {exchanges({2, 2, 9}, {5, 2, 3})},
                                          {exchanges({0, 3, 3}, {1, 9, 3})}};
  EXPECT_TRUE(checkers::CollectiveOrder().check(make_run(ranks)).findings.empty());
  // One that deals out evenly says no more than how much that is.
  ranks = {{exchanges({2, 2, 2}, {2, 2, 2})},
           {exchanges({2, 2, 2}, {2, 2, 2})},
           {exchanges({2, 2, 2}, {2, 2, 2})}};
  ranks[1][0].record.exchange = Collective::Exchange{};
  EXPECT_TRUE(checkers::CollectiveOrder().check(make_run(ranks)).findings.empty());
}

TEST(Splits, OfARankThatDidNotTellAreNotJudged) {
  std::vector<std::vector<Call>> ranks = {{exchanges({1, 2}, {1, 2})}, {exchanges({1, 2}, {1, 2})}};
  EXPECT_FALSE(checkers::CollectiveOrder().check(make_run(ranks)).findings.empty());
  ranks[1][0].record.shares_told = false;
  EXPECT_TRUE(checkers::CollectiveOrder().check(make_run(ranks)).findings.empty());
}

}  // namespace
}  // namespace lockstep::testing
