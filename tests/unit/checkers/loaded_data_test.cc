// Goal: of the data that loops received, what all ranks read alike, what no rank received, and an
// order that comes again are told; what only looks so is not.
#include "checkers/watch/loaded_data.h"

#include <gtest/gtest.h>

#include <memory>

#include "harness/history/watched_values.h"
#include "tests/support/typed_run.h"

namespace lockstep::testing {
namespace {

constexpr std::uint32_t kWhole =
    history::kEnded | history::kIndexed | history::kTrained | history::kShares | history::kShuffles;

/// A pass over a loader of 24 samples a rank.
WatchedEpoch pass(std::uint32_t number, std::uint64_t order) {
  return {.received = 24,
          .batches = 6,
          .order = order,
          .share = 24,
          .digests = {order + 1, order + 2, order + 3, order + 4},
          .replicas = 2,
          .epoch = number,
          .flags = kWhole,
          .sampler = "DistributedSampler",
          .place = "/job/train.py:12"};
}

/// Two ranks, each with its passes.
lockstep::Run read(const std::vector<WatchedEpoch>& zero, const std::vector<WatchedEpoch>& one) {
  lockstep::Run run = make_run({{all_reduce("dp", 8)}, {all_reduce("dp", 8)}});
  run.plan.options["watch"] = "1 %";
  for (const auto& [rank, passes] : {std::pair{0, zero}, std::pair{1, one}}) {
    auto values = std::make_shared<WatchedValues>();
    values->on = true;
    values->epochs = passes;
    process_of(run, Rank{rank}).watched = std::move(values);
  }
  return run;
}

/// What each rank handed to four reductions in backward.
void hand_in(lockstep::Run& run, std::uint64_t zero, std::uint64_t one) {
  for (const auto& [rank, digest] : {std::pair{0, zero}, std::pair{1, one}}) {
    Process& process = process_of(run, Rank{rank});
    process.sites.resize(2);
    process.sites[1].frames = {
        {.file = "train.py", .line = 20, .function = "_engine_run_backward"}};
    for (std::uint64_t at = 1; at <= 4; ++at) {
      process.watched->handed_in.push_back({.position = at,
                                            .numel = 100,
                                            .value = {.digest = digest + at, .sums = {}, .norm = 1},
                                            .site = 1});
    }
  }
}

Verdict checked(const lockstep::Run& run) { return checkers::LoadedData().check(run); }

TEST(LoadedData, AllReadAndComputedTheSame) {
  lockstep::Run run = read({pass(1, 7)}, {pass(1, 7)});
  hand_in(run, 5, 5);
  const Verdict verdict = checked(run);
  ASSERT_EQ(verdict.findings.size(), 1U);
  EXPECT_EQ(verdict.outcome, Outcome::kFail);
  EXPECT_EQ(verdict.findings[0].code, Code::kShardsOverlap);
  EXPECT_TRUE(verdict.findings[0].culprits.empty());
  ASSERT_EQ(verdict.findings[0].sites.size(), 1U);
  EXPECT_EQ(verdict.findings[0].sites[0].line, 12);
}

TEST(LoadedData, WhatOnlyLooksAlikeIsNot) {
  lockstep::Run sliced = read({pass(1, 7)}, {pass(1, 7)});
  hand_in(sliced, 5, 6);
  lockstep::Run other_files = read({pass(1, 7)}, {pass(1, 7)});
  process_of(other_files, Rank{1}).watched->epochs[0].digests[1] = 99;
  hand_in(other_files, 5, 5);
  lockstep::Run evaluated = read({pass(1, 7)}, {pass(1, 7)});
  for (std::int32_t rank = 0; rank < 2; ++rank)
    process_of(evaluated, Rank{rank}).watched->epochs[0].flags &= ~history::kTrained;
  hand_in(evaluated, 5, 5);
  const lockstep::Run nothing_handed_in = read({pass(1, 7)}, {pass(1, 7)});
  for (const lockstep::Run& run : {sliced, other_files, evaluated, nothing_handed_in})
    EXPECT_EQ(checked(run).outcome, Outcome::kPass);
}

TEST(LoadedData, AnOrderThatComesAgainIsANote) {
  const Verdict verdict = checked(read({pass(1, 7), pass(2, 7)}, {pass(1, 9), pass(2, 9)}));
  ASSERT_EQ(verdict.findings.size(), 1U);
  EXPECT_EQ(verdict.outcome, Outcome::kPass);
  EXPECT_EQ(verdict.findings[0].code, Code::kNotReshuffled);
  EXPECT_EQ(verdict.findings[0].severity, Severity::kNote);
  // Two passes in each epoch.
  EXPECT_TRUE(checked(read({pass(1, 7), pass(2, 7), pass(3, 8), pass(4, 8)},
                           {pass(1, 9), pass(2, 9), pass(3, 5), pass(4, 5)}))
                  .findings.empty());
}

TEST(LoadedData, AnOrderByChoiceOrOfAFewSamplesIsNone) {
  const auto with = [](std::uint32_t flags, std::uint64_t received) {
    WatchedEpoch first = pass(1, 7), second = pass(2, 7);
    first.flags = second.flags = flags;
    first.received = second.received = received;
    return read({first, second}, {first, second});
  };
  EXPECT_TRUE(checked(with(kWhole & ~history::kShuffles, 24)).findings.empty());
  EXPECT_TRUE(checked(with(kWhole & ~history::kEnded, 24)).findings.empty());
  EXPECT_TRUE(checked(with(kWhole & ~history::kTrained, 24)).findings.empty());
  EXPECT_TRUE(checked(with(kWhole, 24)).findings.size() == 1);
  EXPECT_TRUE(checked(with(kWhole | history::kDropsLast, 4)).findings.empty());
}

WatchedEpoch cut_pass(std::uint32_t number, std::uint64_t received, std::uint32_t taken = 0) {
  WatchedEpoch one = pass(number, number);
  one.received = received;
  one.taken = taken;
  return one;
}

/// Of two passes of both ranks, with the places of their shares of 24 that they received.
std::vector<Finding> of_halves(std::uint32_t first, std::uint32_t second) {
  return checked(read({cut_pass(1, 12, first), cut_pass(2, 12, first)},
                      {cut_pass(1, 12, second), cut_pass(2, 12, second)}))
      .findings;
}

TEST(LoadedData, SharesThatAreCutIntoSharesAgain) {
  for (const std::uint32_t first : {0x555555U, 0x000fffU, 0xffffffU}) {
    const std::vector<Finding> found = of_halves(first, 0xffffffU & ~first);
    ASSERT_EQ(found.size(), 1U);
    EXPECT_EQ(found[0].code, Code::kSamplesMissed);
    EXPECT_EQ(found[0].headline,
              "of 48 samples that DistributedSampler deals out 24 reach no rank");
    EXPECT_EQ(found[0].severity, Severity::kWarning);
  }
}

TEST(LoadedData, APartOfEachShareIsTakenByChoice) {
  // The same places on both ranks; any; some that nobody takes; what was not seen.
  for (const auto& [first, second] : std::vector<std::pair<std::uint32_t, std::uint32_t>>{
           {0x000fffU, 0x000fffU}, {0x0ff0f0U, 0xf00fffU}, {0x000fffU, 0x0ff000U}, {0, 0}}) {
    const std::vector<Finding> found = of_halves(first, second);
    ASSERT_EQ(found.size(), 1U);
    EXPECT_EQ(found[0].severity, Severity::kNote);
  }
}

TEST(LoadedData, SharesThatAreWholeOrGoneOnWith) {
  // It filled up by one; a restart went on in the middle of the first pass.
  EXPECT_TRUE(checked(read({cut_pass(1, 24), cut_pass(2, 24)}, {cut_pass(1, 23), cut_pass(2, 23)}))
                  .findings.empty());
  EXPECT_TRUE(checked(read({cut_pass(1, 12), cut_pass(2, 24)}, {cut_pass(1, 12), cut_pass(2, 24)}))
                  .findings.empty());
}

/// One pass of both ranks, with the share that each took, and what it was shuffled by.
std::vector<Finding> of_shares(std::uint32_t first, std::uint32_t second, std::uint32_t seed = 7) {
  WatchedEpoch one = pass(1, 7), other = pass(1, 9);
  one.share_of = first;
  other.share_of = second;
  one.seed = 7;
  other.seed = seed;
  return checked(read({one}, {other})).findings;
}

TEST(LoadedData, TwoRanksTakeOneShare) {
  const std::vector<Finding> found = of_shares(2, 2);
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].code, Code::kShardsOverlap);
  EXPECT_EQ(found[0].severity, Severity::kWarning);
  EXPECT_EQ(found[0].headline, "of 2 shares ranks 0,1 take share 1, and nobody takes 0");
  for (const auto& [first, second] : std::vector<std::pair<std::uint32_t, std::uint32_t>>{
           {1, 2}, {2, 1}, {0, 0}, {1, 0}})  // By choice the other way round; not known.
    EXPECT_TRUE(of_shares(first, second).empty());
}

TEST(LoadedData, SharesOfOrdersThatDiffer) {
  const std::vector<Finding> found = of_shares(1, 2, 8);
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].code, Code::kShardsOverlap);
  EXPECT_EQ(found[0].headline,
            "shares overlap: DistributedSampler shuffles in another order on some ranks");
  // Not shuffled; of a part of the ranks.
  WatchedEpoch one = pass(1, 7), other = pass(1, 9);
  one.share_of = 1;
  other.share_of = 2;
  other.seed = 8;
  one.flags = other.flags = kWhole & ~history::kShuffles;
  EXPECT_TRUE(checked(read({one}, {other})).findings.empty());
  one.flags = other.flags = kWhole;
  one.replicas = other.replicas = 1;
  EXPECT_TRUE(checked(read({one}, {other})).findings.empty());
}

TEST(LoadedData, WhereNoIndicesAreKnownTheBatchesSpeak) {
  const auto seen = [](std::uint64_t second) {
    WatchedEpoch stream = pass(1, 0);
    stream.flags = history::kEnded | history::kTrained;
    stream.digests[1] = second;
    lockstep::Run run = read({stream}, {stream});
    hand_in(run, 5, 5);
    return checked(run);
  };
  ASSERT_EQ(seen(2).findings.size(), 1U);
  EXPECT_EQ(seen(2).findings[0].code, Code::kShardsOverlap);
  EXPECT_EQ(seen(2).findings[0].severity, Severity::kWarning);
  EXPECT_TRUE(seen(1).findings.empty());  // One batch again and again.
}

TEST(LoadedData, APartOfTheDataIsSharedOutAgain) {
  const auto seen = [](std::uint64_t zero, std::uint64_t one) {
    WatchedEpoch first = pass(1, 7), second = pass(1, 8);
    first.share_of = 1;
    second.share_of = 2;
    first.subset = zero;
    second.subset = one;
    return checked(read({first}, {second}));
  };
  ASSERT_EQ(seen(3, 4).findings.size(), 1U);
  EXPECT_EQ(seen(3, 4).findings[0].code, Code::kSamplesMissed);
  EXPECT_EQ(seen(3, 4).findings[0].severity, Severity::kWarning);
  EXPECT_TRUE(seen(3, 3).findings.empty());
  EXPECT_TRUE(seen(0, 4).findings.empty());
}

TEST(LoadedData, LoadersOfOneRankAreNobodyElses) {
  WatchedEpoch first = pass(1, 7), second = pass(1, 8), own = pass(1, 9);
  first.share_of = second.share_of = own.share_of = 1;
  first.seed = 1;
  second.seed = own.seed = 2;
  own.loader = 1;
  own.place = "/job/look.py:3";
  second.loader = 1;
  WatchedEpoch theirs = first, their_second = second;
  theirs.share_of = their_second.share_of = 2;
  EXPECT_TRUE(checked(read({first, own, second}, {theirs, their_second})).findings.empty());
}

TEST(LoadedData, SharesThatAreNotAlikeInTwoPasses) {
  const Verdict verdict =
      checked(read({cut_pass(1, 24), cut_pass(2, 24)}, {cut_pass(1, 20), cut_pass(2, 20)}));
  ASSERT_EQ(verdict.findings.size(), 1U);
  EXPECT_EQ(verdict.findings[0].code, Code::kUnequalLengths);
  EXPECT_EQ(verdict.findings[0].severity, Severity::kNote);
  // In one pass alone; where the sampler itself makes shares of different sizes.
  EXPECT_TRUE(checked(read({cut_pass(1, 24), cut_pass(2, 24)}, {cut_pass(1, 20), cut_pass(2, 24)}))
                  .findings.empty());
  WatchedEpoch first = cut_pass(1, 20), second = cut_pass(2, 20);
  first.share = second.share = 20;
  EXPECT_TRUE(checked(read({cut_pass(1, 24), cut_pass(2, 24)}, {first, second})).findings.empty());
}

TEST(LoadedData, APassThatGaveNothing) {
  WatchedEpoch empty = pass(1, 0);
  empty.received = empty.batches = empty.share = 0;
  EXPECT_TRUE(checked(read({empty}, {empty})).findings.empty());  // Nobody dropped anything.
  empty.flags |= history::kDropsLast;
  const Verdict verdict = checked(read({empty}, {empty}));
  ASSERT_EQ(verdict.findings.size(), 1U);
  EXPECT_EQ(verdict.findings[0].code, Code::kEmptyEpoch);
  EXPECT_TRUE(checked(read({empty}, {pass(1, 0)})).findings.empty());
}

TEST(LoadedData, WhereNothingWasSeenNothingIsSaid) {
  EXPECT_EQ(checked(read({}, {pass(1, 7)})).outcome, Outcome::kSkipped);
  EXPECT_EQ(checked(make_run({{}, {}})).outcome, Outcome::kSkipped);
}

}  // namespace
}  // namespace lockstep::testing
