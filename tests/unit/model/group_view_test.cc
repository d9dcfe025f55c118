// Goal: groups without a name are put together where it is certain which of them are one, and
// nothing is said of them where it is not. Row r is rank r.
#include "harness/model/group_view.h"

#include <gtest/gtest.h>

#include "checkers/order/collective_order.h"
#include "harness/history/format.h"
#include "tests/support/typed_run.h"

namespace lockstep::testing {
namespace {

using checkers::CollectiveOrder;
using history::ReduceOp;

/// Group `name` is told by the store in which its members meet.
void meets_in_store(lockstep::Run& run, const std::string& name, std::uint64_t store) {
  for (Process& process : run.processes) {
    process.capabilities |= history::kSeesBackends;
    for (Group& group : process.groups) {
      if (group.name != name)
        continue;
      group.named_by_store = true;
      group.store = store;
      group.ranks.clear();
    }
  }
}

lockstep::Run with_one_maximum() {
  const Call sum = all_reduce("epoch 1", 8).at("train.py", 4);
  const Row before{sum, sum};
  return make_run({before + Row{sum}, before + Row{sum.with(ReduceOp::kMax)}, before + Row{sum}});
}

TEST(GroupsByStore, AreOneWhereTheirMembersMeet) {
  lockstep::Run run = with_one_maximum();
  meets_in_store(run, "epoch 1", 7);
  const std::vector<GroupView> views = group_views(run);
  ASSERT_EQ(views.size(), 1U);
  EXPECT_EQ(views[0].members.size(), 3U);
  EXPECT_EQ(views[0].ranks, (std::vector<Rank>{Rank{0}, Rank{1}, Rank{2}}));
  EXPECT_TRUE(views[0].fully_seen());
  const Verdict verdict = CollectiveOrder().check(run);
  ASSERT_EQ(verdict.findings.size(), 1U) << verdict.reason;
  EXPECT_EQ(verdict.findings[0].code, Code::kDifferentReduction);
  EXPECT_EQ(verdict.findings[0].culprits, RankSet{Rank{1}});
}

/// Nothing is found in it, nothing passes, and no deadlock is proven with it.
void expect_undecided(const lockstep::Run& run, const std::string& why) {
  SCOPED_TRACE(why);
  for (const GroupView& view : group_views(run)) {
    EXPECT_EQ(view.members.size(), 1U);
    EXPECT_FALSE(view.fully_seen());
  }
  const Verdict verdict = CollectiveOrder().check(run);
  EXPECT_EQ(verdict.outcome, Outcome::kUndecided);
  EXPECT_TRUE(verdict.findings.empty());
  EXPECT_NE(verdict.reason.find(text_of(Code::kHistoryIncomplete)), std::string::npos)
      << verdict.reason;
}

TEST(GroupsByStore, OfWhichNobodyKnowsWhereTheyMeetAreLeftAlone) {
  lockstep::Run run = with_one_maximum();
  meets_in_store(run, "epoch 1", 0);
  expect_undecided(run, "store");
}

TEST(GroupsByStore, OfOnePlaceTwiceAreLeftAlone) {
  lockstep::Run run = with_one_maximum();
  meets_in_store(run, "epoch 1", 7);
  for (Process& process : run.processes)
    process.groups[0].my_rank = 0;
  expect_undecided(run, "two of them have one place");
}

TEST(GroupsByStore, OfWhichOneMadeMoreAreLeftAlone) {
  lockstep::Run run = with_one_maximum();
  meets_in_store(run, "epoch 1", 7);
  run.processes[0].groups.push_back(run.processes[0].groups[0]);
  run.processes[0].groups[1].issued = 0;
  expect_undecided(run, "a second one in one process");
}

TEST(GroupsByStore, OfAnotherStoreAreOtherGroups) {
  lockstep::Run run = with_one_maximum();
  meets_in_store(run, "epoch 1", 7);
  run.processes[1].groups[0].store = 8;
  EXPECT_EQ(group_views(run).size(), 2U);
  EXPECT_TRUE(CollectiveOrder().check(run).findings.empty());
}

TEST(GroupsByStore, OfATorchWhoseBackendsAreNotSeenSaySo) {
  lockstep::Run run = with_one_maximum();
  meets_in_store(run, "epoch 1", 7);
  for (Process& process : run.processes) {
    process.capabilities = 0;
    process.torch_version = "9.9";
    process.groups[0].seen_from_creation = false;
  }
  const Verdict verdict = CollectiveOrder().check(run);
  EXPECT_EQ(verdict.outcome, Outcome::kUndecided);
  EXPECT_NE(verdict.reason.find("is not seen in torch 9.9"), std::string::npos) << verdict.reason;
}

TEST(GroupsByStore, InsideOthersSayNothing) {
  lockstep::Run run =
      make_run({{all_reduce("dp", 8), all_reduce("part", 8)}, {all_reduce("dp", 8)}});
  for (Process& process : run.processes)
    process.groups[1].inside = true;
  EXPECT_EQ(group_views(run).size(), 1U);
  EXPECT_EQ(CollectiveOrder().check(run).outcome, Outcome::kPass);
}

}  // namespace
}  // namespace lockstep::testing
