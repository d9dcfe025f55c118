// Goal: every way in which shares of a dataset go wrong is said by its own code, with the samples,
// the ranks and the cause; what a sampler declares is never held against it; and nobody is blamed
// whom the evidence does not convict. Method: shares typed by hand, each beside a healthy twin.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/metamorphic.h"
#include "tests/unit/checkers/sampled_run.h"

namespace lockstep::testing {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

/// Every rank its own permutation.
Epochs unsynchronised(std::int32_t world) {
  Epochs epochs = healthy_epochs(kMany, world);
  for (std::size_t epoch = 0; epoch < epochs.size(); ++epoch) {
    for (std::int32_t rank = 0; rank < world; ++rank)
      epochs[epoch][static_cast<std::size_t>(rank)] =
          dealt(shuffled(kMany, 7 * epoch + static_cast<std::uint64_t>(rank)), world, rank);
  }
  return epochs;
}

/// One rank another permutation than the others.
Epochs one_odd(std::int32_t world, std::int32_t odd) {
  Epochs epochs = healthy_epochs(kMany, world);
  for (std::size_t epoch = 0; epoch < epochs.size(); ++epoch)
    epochs[epoch][static_cast<std::size_t>(odd)] = dealt(shuffled(kMany, 7 + epoch), world, odd);
  return epochs;
}

// --- Healthy
// -------------------------------------------------------------------------------------------------

TEST(SamplerContract, HealthyShares) {
  for (const std::int32_t world : {1, 2, 3, 5}) {
    for (const std::int64_t length : {0, 1, 2, 3, 10, 60, 101}) {
      SCOPED_TRACE(std::to_string(length) + " samples, " + std::to_string(world) + " ranks");
      expect_pass(one_dataset(length, healthy_epochs(length, world)));
      expect_pass(
          one_dataset(length, healthy_epochs(length, world, 3, false), {{"remainder", "drop"}}));
    }
  }
}

TEST(SamplerContract, ShareMayBeDealtToAnyRank) {
  Epochs epochs = healthy_epochs(kMany, 3);
  for (std::vector<Numbers>& epoch : epochs)
    std::rotate(epoch.begin(), epoch.begin() + 1, epoch.end());
  expect_pass(one_dataset(kMany, epochs));
  std::swap(epochs[1][0], epochs[1][2]);
  expect_pass(one_dataset(kMany, epochs));
}

TEST(SamplerContract, SequentialOrderMayRepeat) {
  Epochs epochs(3);
  for (std::vector<Numbers>& epoch : epochs) {
    for (std::int32_t rank = 0; rank < 3; ++rank)
      epoch.push_back(dealt({0, 1, 2, 3, 4, 5, 6, 7}, 3, rank));
  }
  expect_pass(one_dataset(8, epochs, {{"order", "sequential"}}));
}

TEST(SamplerContract, WhatIsDeclaredIsHealthy) {
  // With replacement: repeats and gaps.
  Epochs drawn{{{0, 0, 5, 9}, {9, 1, 1, 0}}, {{3, 0, 5, 9}, {2, 2, 2, 2}}};
  expect_pass(one_dataset(10, drawn, {{"draws", "with_replacement"}}));
  // Three repeats of each of eight, of which the first half is used.
  Epochs repeated{{{4, 4, 1, 1}, {4, 6, 1, 6}}};
  expect_pass(one_dataset(8, repeated, {{"draws", "repeated"}, {"repeats", "3"}}));
  // As many repeats as ranks: the same samples for all.
  const Numbers same = shuffled(kMany, 5);
  expect_pass(one_dataset(kMany, {{same, same, same}}, {{"draws", "repeated"}, {"repeats", "3"}}));
  // Without end: as many batches as were asked for.
  lockstep::Run endless = sampler_run(2, {{"length", "infinite"}});
  see_dataset(endless, 0, {.length = 6, .batches_max = 2});
  see_shard(endless, 0, 0, Rank{0}, {.batches = {{0, 2, 4, 1}, {3, 5, 0, 2}}});
  see_shard(endless, 0, 0, Rank{1}, {.batches = {{1, 3, 5, 0}, {2, 4, 1, 3}}});
  expect_pass(endless);
  // Shares that differ by one.
  expect_pass(one_dataset(7, {{{0, 3, 6}, {1, 4}, {2, 5}}},
                          {{"order", "sequential"}, {"remainder", "keep"}}));
  // Whole batches of four for each rank: filled up, cut off, or dealt out as they are.
  const std::map<std::string, std::string> batches{{"order", "sequential"}, {"unit", "batches"}};
  expect_pass(one_dataset(10, {{{0, 2, 4, 6, 8, 0, 2, 4}, {1, 3, 5, 7, 9, 1, 3, 5}}}, batches));
  expect_pass(one_dataset(10, {{{0, 2, 4, 6}, {1, 3, 5, 7}}},
                          {{"order", "sequential"}, {"unit", "batches"}, {"remainder", "drop"}}));
  expect_pass(one_dataset(10, {{{3, 0, 8, 1, 9, 2}, {4, 5, 7, 6}}},
                          {{"remainder", "keep"}, {"unit", "batches"}}));
  // An epoch that drop_last leaves empty.
  expect_pass(one_dataset(2, {{{}, {}, {}}}, {{"remainder", "drop"}}));
}

TEST(SamplerContract, ChanceIsNoRepeatedOrder) {
  expect_pass(one_dataset(3, {{{1}, {0}, {2}}, {{1}, {0}, {2}}, {{1}, {0}, {2}}}));
}

// --- LS411
// -------------------------------------------------------------------------------------------------

TEST(SamplerContract, EveryRankSeesAllData) {
  const Numbers all = shuffled(kMany, 1);
  const Finding finding = only_finding(one_dataset(kMany, {{all, all, all}}));
  EXPECT_EQ(finding.code, Code::kShardsOverlap);
  EXPECT_EQ(finding.headline, "every rank is given all 100 samples in epoch 0");
  EXPECT_EQ(finding.cause, "every rank sees all data: nothing divides by rank");
  EXPECT_TRUE(finding.culprits.empty());
  EXPECT_EQ(finding.affected, RankSet::all(3));
}

TEST(SamplerContract, BothFaultsOfABucketSamplerThatShardsNothingAreNamed) {
  lockstep::Run run = sampler_run(2);
  see_dataset(run, 0, {.length = kMany});
  see_shard(run, 0, 0, Rank{0}, {.batches = batched(shuffled(kMany, 1), 4)});
  see_shard(run, 0, 0, Rank{1}, {.batches = batched(shuffled(kMany, 2), 5)});
  const Finding finding = only_finding(run);
  EXPECT_EQ(finding.code, Code::kShardsOverlap);
  EXPECT_THAT(finding.also, Contains(Code::kUnequalLengths));
  EXPECT_THAT(finding.cause, HasSubstr("nothing divides by rank"));
}

TEST(SamplerContract, SeedsThatDifferOnEveryRankConvictNobody) {
  for (const std::int32_t world : {2, 3, 5}) {
    const Finding finding = only_finding(one_dataset(kMany, unsynchronised(world)));
    EXPECT_EQ(finding.code, Code::kShardsOverlap);
    EXPECT_THAT(finding.also, Contains(Code::kSamplesMissed));
    EXPECT_THAT(finding.headline, HasSubstr("are given to more than one rank in epoch 0: "));
    EXPECT_THAT(finding.headline, HasSubstr("are given to none: "));
    EXPECT_EQ(finding.cause, "the permutation differs per rank before it is divided: seeds differ");
    EXPECT_TRUE(finding.culprits.empty());
  }
}

TEST(SamplerContract, OneSeedAgainstAStrictMajorityOfThreeOrMoreConvicts) {
  for (const std::int32_t world : {3, 5}) {
    for (std::int32_t odd = 0; odd < world; ++odd) {
      const Finding finding = only_finding(one_dataset(kMany, one_odd(world, odd)));
      EXPECT_EQ(finding.code, Code::kShardsOverlap);
      EXPECT_EQ(finding.culprits, RankSet{Rank{odd}});
      EXPECT_EQ(finding.confidence, Confidence::kLikely);
      EXPECT_THAT(finding.cause, HasSubstr("its seed differs"));
    }
  }
  EXPECT_TRUE(only_finding(one_dataset(kMany, one_odd(2, 1))).culprits.empty());
}

// Of few samples, two ranks may share none by chance.
TEST(SamplerContract, DisjointByChanceConvictsNobody) {
  const Finding finding = only_finding(one_dataset(9, {{{0, 1, 2}, {3, 4, 5}, {0, 3, 6}}}));
  EXPECT_EQ(finding.code, Code::kShardsOverlap);
  EXPECT_TRUE(finding.culprits.empty());
}

TEST(SamplerContract, TwoRanksThatTakeOneShare) {
  Epochs epochs = healthy_epochs(kMany, 3);
  for (std::vector<Numbers>& epoch : epochs)
    epoch[1] = epoch[2];
  const Finding finding = only_finding(one_dataset(kMany, epochs));
  EXPECT_EQ(finding.code, Code::kShardsOverlap);
  EXPECT_THAT(finding.cause, HasSubstr("two ranks take one rank's share"));
  EXPECT_TRUE(finding.culprits.empty());
  EXPECT_EQ(finding.affected, (RankSet{Rank{1}, Rank{2}}));
}

// The middle rank shares with both others, and does nothing else than they.
TEST(SamplerContract, NeighbouringBlocksThatOverlapConvictNobody) {
  Epochs epochs(1, std::vector<Numbers>(3));
  for (std::int64_t rank = 0; rank < 3; ++rank) {
    for (std::int64_t i = 30 * rank; i < std::min<std::int64_t>(90, 30 * rank + 33); ++i)
      epochs[0][static_cast<std::size_t>(rank)].push_back(i);
  }
  epochs[0][2].push_back(0);
  epochs[0][2].push_back(1);
  epochs[0][2].push_back(2);
  for (const char* order : {"sequential", "shuffled"}) {
    const Finding finding = only_finding(one_dataset(90, epochs, {{"order", order}}));
    EXPECT_EQ(finding.code, Code::kShardsOverlap);
    EXPECT_TRUE(finding.culprits.empty());
    EXPECT_THAT(finding.headline, HasSubstr("30, 31, 32"));
    EXPECT_THAT(finding.cause, HasSubstr("neighbouring blocks overlap"));
  }
}

TEST(SamplerContract, TheSameDrawsOnEveryRankAreNoReplacement) {
  const Numbers draws = shuffled(kMany, 3);
  const Finding finding =
      only_finding(one_dataset(kMany, {{draws, draws}}, {{"draws", "with_replacement"}}));
  EXPECT_EQ(finding.code, Code::kShardsOverlap);
  EXPECT_EQ(finding.cause, "nothing divides by rank");
}

TEST(SamplerContract, APermutationIsNoReplacement) {
  const Numbers all = shuffled(kMany, 3);
  const auto half = all.begin() + kMany / 2;
  const Epochs dealt_out{{{all.begin(), half}, {half, all.end()}}};
  const Finding finding =
      only_finding(one_dataset(kMany, dealt_out, {{"draws", "with_replacement"}}));
  EXPECT_EQ(finding.code, Code::kDealtOtherwise);
  EXPECT_THAT(finding.headline, HasSubstr("given twice in epoch 0"));
  // One sample twice; and so few that they may all differ.
  Epochs drawn = dealt_out;
  drawn[0][0][0] = drawn[0][1][0];
  expect_pass(one_dataset(kMany, drawn, {{"draws", "with_replacement"}}));
  expect_pass(one_dataset(8, {{{0, 1, 2}, {3, 4, 5}}}, {{"draws", "with_replacement"}}));
}

// --- What cannot be decided, and the law
// -------------------------------------------------------------------------------------------------

TEST(SamplerContract, SkippedWithoutASamplerOrAPromise) {
  EXPECT_EQ(check(sampler_run(2)).outcome, Outcome::kSkipped);
  lockstep::Run run = one_dataset(4, {{{0, 2}, {1, 3}}});
  run.plan.contract.clear();
  EXPECT_EQ(check(run).outcome, Outcome::kSkipped);
}

TEST(SamplerContract, CannotDecideWithoutOneRankOrTheDataset) {
  const auto without = [](const std::string& name, std::optional<Rank> rank) {
    lockstep::Run run = one_dataset(12, healthy_epochs(12, 3));
    std::erase_if(run.observations,
                  [&](const Observation& seen) { return seen.name == name && seen.rank == rank; });
    return check(run);
  };
  const Verdict verdict = without("sampler/indices", Rank{1});
  EXPECT_EQ(verdict.outcome, Outcome::kUndecided);
  EXPECT_EQ(verdict.reason, "the samples of rank 1 in epoch 0 of dataset 0 were not observed");
  EXPECT_EQ(without("sampler/batch_sizes", Rank{2}).outcome, Outcome::kUndecided);
  EXPECT_EQ(without("dataset/length", std::nullopt).outcome, Outcome::kUndecided);
  EXPECT_EQ(without("dataset/batch_size", std::nullopt).outcome, Outcome::kUndecided);
  lockstep::Run unreadable = one_dataset(12, healthy_epochs(12, 3));
  unreadable.tensor = {};
  EXPECT_EQ(check(unreadable).outcome, Outcome::kUndecided);
}

TEST(SamplerContract, WithoutAWholeJournalNobodyIsConvicted) {
  lockstep::Run run = one_dataset(kMany, one_odd(3, 1));
  run.journal_complete = false;
  const Finding finding = only_finding(run);
  EXPECT_EQ(finding.code, Code::kShardsOverlap);
  EXPECT_TRUE(finding.culprits.empty());
}

TEST(SamplerContract, DeletionNeverTurnsPassIntoFailNorMovesTheBlame) {
  Epochs two_odd = one_odd(5, 1);
  two_odd[0] = healthy_epochs(kMany, 5)[0];
  two_odd[2] = healthy_epochs(kMany, 5)[2];
  two_odd[2][3] = dealt(shuffled(kMany, 77), 5, 3);
  Epochs short_rank = healthy_epochs(96, 3, 2);
  short_rank[0][2].resize(28);
  short_rank[1][1].resize(28);
  Epochs stale = healthy_epochs(kMany, 3);
  stale[1] = stale[0];
  const std::vector<lockstep::Run> runs{
      one_dataset(kMany, healthy_epochs(kMany, 3)),
      one_dataset(10, healthy_epochs(10, 3, 3, false), {{"remainder", "drop"}}),
      one_dataset(kMany, one_odd(3, 1)),
      one_dataset(kMany, two_odd),
      one_dataset(96, short_rank),
      one_dataset(kMany, stale),
  };
  for (std::size_t i = 0; i < runs.size(); ++i) {
    SCOPED_TRACE(i);
    for (const std::string& violation : law_violations(runs[i], {.single_max = 60, .subsets = 20}))
      ADD_FAILURE() << violation;
  }
}

}  // namespace
}  // namespace lockstep::testing
