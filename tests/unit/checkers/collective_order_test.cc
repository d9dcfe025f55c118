// Goal: the first divergence of each group, with the right code and never an innocent rank. Row r
// is rank r.
#include "checkers/order/collective_order.h"

#include <gtest/gtest.h>

#include "tests/support/typed_run.h"

namespace lockstep::testing {
namespace {

using enum Code;
using checkers::CollectiveOrder;
using history::DType;
using history::ReduceOp;

Verdict check(const lockstep::Run& run) { return CollectiveOrder().check(run); }

void expect_pass(const lockstep::Run& run) {
  const Verdict verdict = check(run);
  EXPECT_EQ(verdict.outcome, Outcome::kPass) << verdict.reason;
  for (const Finding& finding : verdict.findings)
    ADD_FAILURE() << text_of(finding.code) << ": " << finding.headline;
}

Finding only_finding(const lockstep::Run& run) {
  const Verdict verdict = check(run);
  EXPECT_EQ(verdict.outcome, Outcome::kFail) << verdict.reason;
  EXPECT_EQ(verdict.findings.size(), 1U);
  return verdict.findings.empty() ? Finding{} : verdict.findings.front();
}

TEST(CollectiveOrder, PassesWhenAllAgree) {
  const Row row = times(50, {all_reduce("dp", 8), broadcast("dp", 4), barrier("tp")});
  expect_pass(make_run({row, row, row}));
}

TEST(CollectiveOrder, ReportsOnlyTheFirstDivergence) {
  const Finding finding = only_finding(make_run({
      {all_reduce("dp", 8), broadcast("dp", 4)},
      {broadcast("dp", 4), all_reduce("dp", 8)},
  }));
  EXPECT_EQ(finding.code, kDifferentOp);
  EXPECT_EQ(finding.seq, 0U);
  EXPECT_TRUE(finding.culprits.empty());  // Two ranks: either may be wrong.
}

TEST(CollectiveOrder, CannotDecideWithoutARecordOnTwoRanks) {
  EXPECT_EQ(check(make_run({{}, {}})).outcome, Outcome::kUndecided);
  lockstep::Run run = make_run({{all_reduce("dp", 8)}, {all_reduce("dp", 9)}});
  run.processes.pop_back();
  EXPECT_EQ(check(run).outcome, Outcome::kUndecided);
}

TEST(CollectiveOrder, CannotDecideForAGroupThatWasMetLate) {
  lockstep::Run run = make_run({{all_reduce("dp", 8)}, {broadcast("dp", 8)}});
  run.processes[1].groups[0].seen_from_creation = false;
  const Verdict verdict = check(run);
  EXPECT_EQ(verdict.outcome, Outcome::kUndecided);
  EXPECT_NE(verdict.reason.find(text_of(kHistoryIncomplete)), std::string::npos);
}

struct Mismatch {
  const char* what{};
  Call right{}, wrong{};
  Code code{};
};

class EveryMismatch : public ::testing::TestWithParam<Mismatch> {};

TEST_P(EveryMismatch, NamesTheMinority) {
  const Mismatch& m = GetParam();
  SCOPED_TRACE(m.what);
  const Row before = times(3, {all_reduce("dp", 8)});
  const Finding finding = only_finding(make_run({
      before + Row{m.right.at("train.py", 10)},
      before + Row{m.wrong.at("train.py", 12)},
      before + Row{m.right.at("train.py", 10)},
  }));
  EXPECT_EQ(finding.code, m.code);
  EXPECT_EQ(finding.seq, 3U);
  EXPECT_EQ(finding.culprits, RankSet{Rank{1}});
  EXPECT_EQ(finding.confidence, Confidence::kLikely);
  ASSERT_EQ(finding.sites.size(), 2U);
  EXPECT_EQ(finding.sites[0].role, "culprit");
  EXPECT_EQ(finding.sites[0].line, 12);
  EXPECT_EQ(finding.sites[1].role, "peer");
  EXPECT_EQ(finding.sites[1].line, 10);
}

TEST_P(EveryMismatch, OnTwoRanksNamesNobody) {
  const Finding finding = only_finding(make_run({{GetParam().right}, {GetParam().wrong}}));
  EXPECT_EQ(finding.code, GetParam().code);
  EXPECT_TRUE(finding.culprits.empty());
  EXPECT_EQ(finding.affected, (RankSet{Rank{0}, Rank{1}}));
}

INSTANTIATE_TEST_SUITE_P(
    Codes, EveryMismatch,
    ::testing::Values(
        Mismatch{"op", all_reduce("dp", 8), barrier("dp"), kDifferentOp},
        Mismatch{"size", all_reduce("dp", 8), all_reduce("dp", 9), kDifferentSize},
        Mismatch{"broadcast size", broadcast("dp", 8), broadcast("dp", 4), kDifferentSize},
        Mismatch{"all_gather results", all_gather("dp", 3, 9), all_gather("dp", 5, 15),
                 kDifferentSize},
        Mismatch{"dtype", all_reduce("dp", 8), all_reduce("dp", 8).with(DType::kInt32),
                 kDifferentDtype},
        Mismatch{"reduce op", all_reduce("dp", 8), all_reduce("dp", 8).with(ReduceOp::kMax),
                 kDifferentReduction},
        Mismatch{"root", broadcast("dp", 8, 0), broadcast("dp", 8, 2), kDifferentRoot}));

// Three calls left out would make the last one fit; that every second one fits says more.
TEST(CollectiveOrder, ALineThatIsWrongInEveryRoundLeavesNothingOut) {
  const auto round = [](const Call& first) {
    return times(3, {first, all_reduce("dp", 1).with(ReduceOp::kMax).at("t.cc", 3)});
  };
  const Row right = round(all_reduce("dp", 1).at("t.cc", 1));
  const Finding finding = only_finding(
      make_run({right, right, round(all_reduce("dp", 1).with(ReduceOp::kMax).at("t.cc", 2))}));
  EXPECT_EQ(finding.code, kDifferentReduction);
  EXPECT_EQ(finding.culprits, RankSet{Rank{2}});
}

TEST(CollectiveOrder, SizeComesBeforeType) {
  const Finding finding =
      only_finding(make_run({{all_reduce("dp", 8)}, {all_reduce("dp", 16).with(DType::kFloat16)}}));
  EXPECT_EQ(finding.code, kDifferentSize);
  EXPECT_EQ(finding.also, std::vector<Code>{kDifferentDtype});
}

// --- What may legally differ
// ------------------------------------------------------------------------------------

TEST(CollectiveOrder, UnevenListsAreHealthyIfTheyAddUp) {
  using history::Op;
  expect_pass(make_run({{all_gather("dp", 3, 8)}, {all_gather("dp", 5, 8)}}));
  expect_pass(
      make_run({{call(Op::kAllToAllSingle, "dp", 7, 5)}, {call(Op::kAllToAllSingle, "dp", 3, 5)}}));
  expect_pass(
      make_run({{call(Op::kReduceScatter, "dp", 8, 3)}, {call(Op::kReduceScatter, "dp", 8, 5)}}));
  // The root has the list, the others have none; and no type where there is no tensor.
  expect_pass(make_run({{call(Op::kScatter, "dp", 8, 4).rooted(0)},
                        {call(Op::kScatter, "dp", 0, 4).rooted(0).with(DType::kNone)}}));
  expect_pass(make_run(
      {{call(Op::kGather, "dp", 4, 8).rooted(0)}, {call(Op::kGather, "dp", 4, 0).rooted(0)}}));
}

TEST(CollectiveOrder, SizesThatCannotAddUpNameNobodyAndEveryLine) {
  const Finding finding = only_finding(make_run(
      {{all_gather("dp", 3, 6).at("train.py", 10)}, {all_gather("dp", 5, 6).at("train.py", 12)}}));
  EXPECT_EQ(finding.code, kDifferentSize);
  EXPECT_TRUE(finding.culprits.empty());
  ASSERT_EQ(finding.sites.size(), 2U);
  EXPECT_EQ(finding.sites[0].line, 10);
  EXPECT_EQ(finding.sites[1].line, 12);
}

TEST(CollectiveOrder, BranchesWithSitesThatDifferForEverAreHealthy) {
  const Row root = times(20, {broadcast("dp", 8).at("a.py", 3)});
  const Row other = times(20, {broadcast("dp", 8).at("a.py", 5)});
  expect_pass(make_run({root, other}));
  expect_pass(make_run({root, other, other}));
}

TEST(CollectiveOrder, TakingTurnsIsHealthy) {
  const Call mine = all_reduce("dp", 8).at("a.py", 3);
  const Call empty = all_reduce("dp", 8).at("a.py", 5);
  expect_pass(make_run({times(10, {mine, empty}), times(10, {empty, mine})}));
  const Call root = broadcast("dp", 8).at("a.py", 3);
  const Call leaf = broadcast("dp", 8).at("a.py", 5);
  expect_pass(make_run({times(5, {root.rooted(0), leaf.rooted(1), leaf.rooted(2)}),
                        times(5, {leaf.rooted(0), root.rooted(1), leaf.rooted(2)}),
                        times(5, {leaf.rooted(0), leaf.rooted(1), root.rooted(2)})}));
}

TEST(CollectiveOrder, OverlappedCallsConvictNobody) {
  const Verdict verdict = check(make_run({
      {all_reduce("dp", 8).overlapped(), broadcast("dp", 4).overlapped(), barrier("dp")},
      {broadcast("dp", 4), all_reduce("dp", 8), barrier("dp")},
  }));
  EXPECT_EQ(verdict.outcome, Outcome::kUndecided);
  EXPECT_TRUE(verdict.findings.empty());
}

TEST(CollectiveOrder, ANameUsedAgainIsAnotherGroup) {
  lockstep::Run run = make_run({
      {all_reduce("dp", 8), broadcast("again", 4)},
      {all_reduce("dp", 8), broadcast("again", 4)},
  });
  for (Process& process : run.processes) {
    process.groups[1].name = "dp";
    process.groups[1].generation = 1;
  }
  expect_pass(run);
}

TEST(CollectiveOrder, WhoSatOutASmallerWorldIsStillInTheNextOne) {
  const auto shrunk_and_grown = [](std::uint64_t count_on_rank_2) {
    lockstep::Run run = make_run({
        {all_reduce("0", 8), all_reduce("small", 4), all_reduce("grown", 2)},
        {all_reduce("0", 8), all_reduce("small", 4), all_reduce("grown", 2)},
        {all_reduce("0", 8), all_reduce("grown", count_on_rank_2)},
    });
    for (Process& process : run.processes) {
      for (std::uint32_t i = 0; i < process.groups.size(); ++i) {
        if (process.groups[i].name == "small") {
          process.groups[i].size = 2;
          process.groups[i].ranks = {Rank{0}, Rank{1}};
        }
        process.groups[i].name = "0";
        process.groups[i].generation = i;
      }
    }
    return run;
  };
  expect_pass(shrunk_and_grown(2));
  EXPECT_EQ(only_finding(shrunk_and_grown(3)).code, kDifferentSize);
}

TEST(CollectiveOrder, AMemberWithoutHistoryProvesNothingAndBlamesNobody) {
  const Row right{all_reduce("dp", 8)};
  lockstep::Run run = make_run({right, right, {all_reduce("dp", 9)}, right});
  run.processes.erase(run.processes.begin() + 1);
  const Finding finding = only_finding(run);
  EXPECT_EQ(finding.code, kDifferentSize);
  EXPECT_TRUE(finding.culprits.empty());
}

TEST(CollectiveOrder, GroupCreatedDifferentlyIsCertainOrSilent) {
  lockstep::Run run =
      make_run({{all_reduce("dp", 8)}, {all_reduce("dp", 8)}, {all_reduce("dp", 8)}});
  run.processes[1].groups[0].ranks = {Rank{0}, Rank{1}};
  run.processes[1].groups[0].size = 2;
  EXPECT_EQ(only_finding(run).code, kGroupDiffers);
  // Two disjoint groups under one name are two groups.
  lockstep::Run twins = make_run(
      {{all_reduce("dp", 8)}, {all_reduce("dp", 8)}, {all_reduce("dp", 9)}, {all_reduce("dp", 9)}});
  for (Process& process : twins.processes) {
    process.groups[0].size = 2;
    process.groups[0].ranks = process.rank->value < 2 ? std::vector<Rank>{Rank{0}, Rank{1}}
                                                      : std::vector<Rank>{Rank{2}, Rank{3}};
  }
  expect_pass(twins);
}

// --- Extra, missing, swapped ---

/// Requests for steps of `calls` calls each; the last is not answered.
void ask_for_steps(lockstep::Run& run, std::uint64_t calls, std::uint64_t steps) {
  for (const Rank rank : RankSet::all(run.plan.world_size)) {
    for (std::uint64_t n = 0; n < steps; ++n) {
      const std::uint64_t at_ns = kStart + calls * n * kEvery - kMs;
      ask(run, rank, "step", at_ns,
          n + 1 < steps ? std::optional(at_ns + (calls - 1) * kEvery + 5 * kMs) : std::nullopt);
    }
  }
}

const Call kB0 = all_reduce("dp", 10).async();
const Call kB1 = all_reduce("dp", 20).async();
const Call kB2 = all_reduce("dp", 30).async();

TEST(CollectiveOrder, ABucketLeftOut) {
  const Row step{kB0, kB1, kB2};
  const Finding finding = only_finding(make_run({
      times(2, step) + Row{kB0.pending(), kB1.at("ddp.cc", 7).pending(), kB2.pending()},
      times(2, step) + Row{kB0.pending(), kB2.at("ddp.cc", 8).pending()},
      times(2, step) + Row{kB0.pending(), kB1.at("ddp.cc", 7).pending(), kB2.pending()},
  }));
  EXPECT_EQ(finding.code, kMissingCall);
  EXPECT_EQ(finding.also, std::vector<Code>{kDifferentSize});
  EXPECT_EQ(finding.culprits, RankSet{Rank{1}});
  EXPECT_EQ(finding.seq, 7U);
}

// Gloo holds one in the call itself: what the other did afterwards explains it.
TEST(CollectiveOrder, ABucketLeftOutWhereOnePeerIsStuckAtOnce) {
  const Call first = broadcast("dp", 5);
  const Call loss = all_reduce("dp", 1).pending();
  const Finding finding = only_finding(make_run({
      {first, kB0, kB1.pending()},
      {first, kB0, kB2.at("ddp.cc", 8).pending(), loss},
      {first, kB0, kB1.pending(), kB2.pending(), loss},
  }));
  EXPECT_EQ(finding.code, kMissingCall);
  EXPECT_EQ(finding.culprits, RankSet{Rank{1}});
}

// Nothing follows, so nothing is proven by what follows; within a request there is no other way to
// get there.
TEST(CollectiveOrder, ACallLeftOutThatStopsEverybody) {
  const Row step{all_reduce("dp", 10), all_reduce("dp", 20), all_reduce("dp", 30)};
  lockstep::Run run = make_run({
      times(3, step) + Row{all_reduce("dp", 10), all_reduce("dp", 20).pending()},
      times(3, step) + Row{all_reduce("dp", 10), all_reduce("dp", 20).pending()},
      times(3, step) + Row{all_reduce("dp", 10), all_reduce("dp", 30).pending()},
  });
  EXPECT_EQ(only_finding(run).code, kDifferentSize);
  EXPECT_EQ(only_finding(run).also, (std::vector<Code>{kExtraCall, kMissingCall}));
  EXPECT_EQ(only_finding(run).culprits, RankSet{Rank{2}});
  ask_for_steps(run, 3, 4);
  EXPECT_EQ(only_finding(run).code, kMissingCall);
  EXPECT_EQ(only_finding(run).culprits, RankSet{Rank{2}});
}

TEST(CollectiveOrder, ACallTooMany) {
  const Call bcast = broadcast("dp", 5).at("bn.cc", 4);
  const Finding finding = only_finding(make_run({
      {bcast, all_reduce("dp", 8), bcast, all_reduce("dp", 8)},
      {bcast, bcast, all_reduce("dp", 8), bcast, all_reduce("dp", 8)},
      {bcast, all_reduce("dp", 8), bcast, all_reduce("dp", 8)},
  }));
  EXPECT_EQ(finding.code, kExtraCall);
  EXPECT_EQ(finding.culprits, RankSet{Rank{1}});
  EXPECT_EQ(finding.seq, 1U);
}

// A forward too many, where the extra broadcast stops everybody. Only the requests tell it from a
// backward that was left out.
TEST(CollectiveOrder, AForwardTooManyInAConversation) {
  const Row step{broadcast("dp", 10).at("bn.cc", 4), broadcast("dp", 1).at("bn.cc", 4),
                 all_reduce("dp", 8).async()};
  const Row healthy = times(3, step);
  lockstep::Run run = make_run({
      healthy + Row{step[0], step[1], step[2].pending()},
      healthy + Row{step[0], step[1], step[0].pending()},
      healthy + Row{step[0], step[1], step[2].pending()},
  });
  EXPECT_EQ(only_finding(run).code, kDifferentOp);  // Without requests: either is possible.
  EXPECT_EQ(only_finding(run).also, (std::vector<Code>{kExtraCall, kMissingCall}));
  ask_for_steps(run, 3, 4);
  const Finding finding = only_finding(run);
  EXPECT_EQ(finding.code, kExtraCall);
  EXPECT_EQ(finding.culprits, RankSet{Rank{1}});
}

// The extra calls look like the regular ones that follow; only their line tells which they are.
TEST(CollectiveOrder, AForwardTooManyIsFoundAtItsOwnLine) {
  const Row step{broadcast("dp", 10).at("bn.cc", 4), broadcast("dp", 1).at("bn.cc", 5),
                 all_reduce("dp", 8).async().at("ddp.cc", 6)};
  const Row extra{broadcast("dp", 10).at("extra.cc", 1), broadcast("dp", 1).at("extra.cc", 2)};
  lockstep::Run run = make_run({
      times(3, step),
      times(2, step) + extra + Row{step[0], step[1]},
      times(3, step),
  });
  const Finding finding = only_finding(run);
  EXPECT_EQ(finding.code, kExtraCall);
  EXPECT_EQ(finding.culprits, RankSet{Rank{1}});
  EXPECT_EQ(finding.seq, 6U);
  ASSERT_FALSE(finding.sites.empty());
  EXPECT_EQ(finding.sites[0].file, "extra.cc");
  EXPECT_EQ(finding.sites[0].role, "culprit");
}

// Of two ranks nobody is named, but both lines are: where they part, not where it shows.
TEST(CollectiveOrder, OfTwoRanksTheLinesAreToldWhereTheyPart) {
  const Row step{broadcast("dp", 10).at("bn.cc", 4), all_reduce("dp", 8).at("ddp.cc", 6)};
  const Finding finding = only_finding(make_run({
      times(2, step) + Row{broadcast("dp", 10).at("extra.cc", 1)} + step,
      times(3, step),
  }));
  EXPECT_TRUE(finding.culprits.empty());
  EXPECT_EQ(finding.seq, 5U);
  ASSERT_EQ(finding.sites.size(), 2U);
  EXPECT_EQ(finding.sites[0].file, "extra.cc");
  EXPECT_EQ(finding.sites[1].file, "bn.cc");
  EXPECT_EQ(finding.evidence.front().text,
            "their lines part at #4: rank 0 at extra.cc:1, rank 1 at bn.cc:4");
}

// What the extra forward does first (rebuilding buckets) is done from its line instead of the
// regular one.
TEST(CollectiveOrder, AForwardTooManyThatTakesOverWhatIsDoneOnce) {
  const Row step{broadcast("dp", 10).at("bn.cc", 4), broadcast("dp", 1).at("bn.cc", 4),
                 all_reduce("dp", 8).async().at("ddp.cc", 6)};
  const Row once{broadcast("dp", 3).at("ddp.cc", 9), broadcast("dp", 1).at("ddp.cc", 9)};
  const Row once_there{once[0].at("extra.cc", 1), once[1].at("extra.cc", 1)};
  const Row extra{step[0].at("extra.cc", 2), step[1].at("extra.cc", 2)};
  const Finding finding = only_finding(make_run({
      step + once + step,
      step + once_there + extra + Row{step[0], step[1]},
      step + once + step,
  }));
  EXPECT_EQ(finding.code, kExtraCall);
  EXPECT_EQ(finding.seq, 5U);
  EXPECT_EQ(finding.sites.at(0).line, 2);
}

// What a key is must not depend on whether names were resolved.
TEST(CollectiveOrder, SaysTheSameWithAndWithoutResolvedNames) {
  const Call a = all_reduce("dp", 8).at("x.py", 1);
  const Call b = all_reduce("dp", 9).at("x.py", 2);
  lockstep::Run run = make_run({{a, b, a}, {b, a, a}});
  const Finding resolved = only_finding(run);
  for (Process& process : run.processes) {
    for (CallSite& site : process.sites) {
      for (Frame& frame : site.frames)
        frame = {frame.module, frame.offset, "", 0, ""};
    }
  }
  EXPECT_EQ(only_finding(run).code, resolved.code);
  EXPECT_EQ(only_finding(run).headline, resolved.headline);
}

TEST(CollectiveOrder, AnotherSizeIsNotAnExtraCall) {
  const Finding finding = only_finding(make_run({
      times(6, {all_reduce("dp", 8)}),
      Row{all_reduce("dp", 8), all_reduce("dp", 9)} + times(4, {all_reduce("dp", 8)}),
      times(6, {all_reduce("dp", 8)}),
  }));
  EXPECT_EQ(finding.code, kDifferentSize);
}

// --- Attribution
// ------------------------------------------------------------------------------------------------

TEST(CollectiveOrder, AnEvenSplitNamesNobody) {
  const Finding finding = only_finding(make_run({{all_reduce("dp", 8)},
                                                 {all_reduce("dp", 8)},
                                                 {all_reduce("dp", 9)},
                                                 {all_reduce("dp", 9)}}));
  EXPECT_TRUE(finding.culprits.empty());
  EXPECT_EQ(finding.affected.size(), 4U);
}

TEST(CollectiveOrder, OnTwoRanksTheOneThatBreaksItsHabitIsNamed) {
  const Row loop{broadcast("dp", 4).at("t.py", 1), all_reduce("dp", 8).at("t.py", 2),
                 all_reduce("dp", 9).at("t.py", 3)};
  const Row before = times(10, loop);
  const Finding skips = only_finding(make_run({before + loop, before + Row{loop[0], loop[0]}}));
  EXPECT_EQ(skips.code, kDifferentOp);
  EXPECT_EQ(skips.culprits, RankSet{Rank{1}});
  EXPECT_EQ(skips.confidence, Confidence::kLikely);
  // A line that nobody was at before: the first checkpoint, on the right rank or the wrong one.
  const Finding begins =
      only_finding(make_run({before + loop, before + Row{loop[0], barrier("dp").at("t.py", 9)}}));
  EXPECT_EQ(begins.code, kDifferentOp);
  EXPECT_TRUE(begins.culprits.empty());
}

}  // namespace
}  // namespace lockstep::testing
