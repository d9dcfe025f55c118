// Goal: samples that are missed, repeated or invented, counts and lengths that are off, and orders
// that repeat are each said by their own code. Method: as in sampler_shards_test.cc.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/checkers/sampled_run.h"

namespace lockstep::testing {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

// --- LS412 to LS416
// -------------------------------------------------------------------------------------------------

TEST(SamplerContract, MissedSamplesAreListed) {
  Epochs epochs{{{0, 1, 2, 3}, {5, 6, 7, 8}}};
  const Finding finding = only_finding(one_dataset(10, epochs));
  EXPECT_EQ(finding.code, Code::kSamplesMissed);
  EXPECT_EQ(finding.headline, "2 of 10 samples are given to no rank in epoch 0: 4, 9");
  EXPECT_TRUE(finding.culprits.empty());
}

TEST(SamplerContract, MoreIsDroppedThanDeclared) {
  const Epochs epochs{{{0, 1, 2}, {3, 4, 5}, {6, 7, 8}}};
  expect_pass(one_dataset(10, epochs, {{"remainder", "drop"}}));
  EXPECT_EQ(only_finding(one_dataset(12, epochs, {{"remainder", "drop"}})).code,
            Code::kSamplesMissed);
}

TEST(SamplerContract, ATailThatIsNeverSeenInAnyEpoch) {
  constexpr std::int64_t kLength = 302;
  Epochs epochs;
  for (std::uint64_t epoch = 0; epoch < 3; ++epoch) {
    epochs.emplace_back();
    for (std::int32_t rank = 0; rank < 3; ++rank)
      epochs.back().push_back(dealt(shuffled(300, epoch), 3, rank));
  }
  const Finding finding = only_finding(one_dataset(kLength, epochs, {{"remainder", "drop"}}));
  EXPECT_EQ(finding.code, Code::kSamplesMissed);
  EXPECT_EQ(finding.headline, "2 of 302 samples are never given, in none of 3 epochs: 300, 301");
  EXPECT_EQ(finding.cause,
            "the tail of 302 mod 3 samples is cut off before the order is shuffled, so it is never "
            "seen");
  EXPECT_TRUE(finding.culprits.empty());
  epochs[1][2][5] = 301;  // Once is enough.
  expect_pass(one_dataset(kLength, epochs, {{"remainder", "drop"}}));
}

TEST(SamplerContract, TooFewEpochsToSayNever) {
  const Epochs epochs{{{0, 1, 2}, {3, 4, 5}}, {{2, 0, 1}, {5, 4, 3}}, {{1, 0, 2}, {5, 3, 4}}};
  expect_pass(one_dataset(7, epochs, {{"remainder", "drop"}}));
}

TEST(SamplerContract, OneBatchMoreOnOneRankConvictsIt) {
  Epochs epochs = healthy_epochs(96, 3, 1);
  const Numbers more(epochs[0][1].begin(), epochs[0][1].begin() + 4);
  epochs[0][1].insert(epochs[0][1].end(), more.begin(), more.end());
  const Finding finding = only_finding(one_dataset(96, epochs));
  EXPECT_EQ(finding.code, Code::kUnequalLengths);
  EXPECT_EQ(finding.headline,
            "ranks are given different numbers of batches in epoch 0 of 96 samples: 8, 9, 8 on "
            "ranks 0 to 2");
  EXPECT_EQ(finding.culprits, RankSet{Rank{1}});
  EXPECT_THAT(finding.also, Contains(Code::kSampleRepeated));
  // Two ranks are no majority.
  epochs[0].pop_back();
  EXPECT_TRUE(only_finding(one_dataset(96, epochs)).culprits.empty());
}

TEST(SamplerContract, OneBatchLessOnOneRankConvictsIt) {
  Epochs epochs = healthy_epochs(96, 3, 1);
  epochs[0][2].resize(28);
  const Finding finding = only_finding(one_dataset(96, epochs));
  EXPECT_EQ(finding.code, Code::kUnequalLengths);
  EXPECT_EQ(finding.culprits, RankSet{Rank{2}});
  EXPECT_THAT(finding.also, Contains(Code::kSamplesMissed));
}

// All ranks compute the same partition; the last one comes out longer.
TEST(SamplerContract, AnUnevenPartitionConvictsNobody) {
  const Finding finding = only_finding(
      one_dataset(10, {{{0, 1, 2}, {3, 4, 5}, {6, 7, 8, 9}}}, {{"remainder", "drop"}}));
  EXPECT_EQ(finding.code, Code::kUnequalLengths);
  EXPECT_TRUE(finding.culprits.empty());
  EXPECT_THAT(finding.headline, HasSubstr("numbers of samples"));
}

TEST(SamplerContract, APartOfTheRanksRepeatsAnOrder) {
  Epochs epochs = healthy_epochs(kMany, 3);
  epochs[1][2] = epochs[0][2];
  const Finding finding = only_finding(one_dataset(kMany, epochs));
  EXPECT_EQ(finding.code, Code::kNotReshuffled);
  EXPECT_EQ(finding.culprits, RankSet{Rank{2}});
  EXPECT_EQ(finding.step, 1);
  EXPECT_THAT(finding.also, Contains(Code::kShardsOverlap));
}

TEST(SamplerContract, NoRankReshuffles) {
  Epochs epochs = healthy_epochs(kMany, 3);
  epochs[2] = epochs[0];
  const Finding finding = only_finding(one_dataset(kMany, epochs));
  EXPECT_EQ(finding.code, Code::kNotReshuffled);
  EXPECT_EQ(finding.headline,
            "epoch 2 of 100 samples has the order of epoch 0 again on every rank");
  EXPECT_TRUE(finding.culprits.empty());
  EXPECT_EQ(finding.affected, RankSet::all(3));
}

TEST(SamplerContract, PaddingIsCountedAsData) {
  const Epochs epochs = healthy_epochs(10, 3, 1);
  for (const char* remainder : {"keep", "drop"}) {
    const Finding finding = only_finding(one_dataset(10, epochs, {{"remainder", remainder}}));
    EXPECT_EQ(finding.code, Code::kPaddingCounted);
    EXPECT_THAT(finding.headline, HasSubstr("2 samples are given again to make shares equal"));
    EXPECT_TRUE(finding.culprits.empty());
  }
  expect_pass(one_dataset(10, epochs));
}

TEST(SamplerContract, PaddingToWholeBatchesIsCountedAsData) {
  Numbers order = shuffled(13, 100);
  for (std::size_t i = 0; i < 11; ++i)  // Three ranks times two batches of 4.
    order.push_back(order[i]);
  const Epochs epochs{{dealt(order, 3, 0), dealt(order, 3, 1), dealt(order, 3, 2)}};
  const Finding finding = only_finding(one_dataset(13, epochs, {{"remainder", "drop"}}));
  EXPECT_EQ(finding.code, Code::kPaddingCounted);
  EXPECT_THAT(finding.headline, HasSubstr("11 samples are given again to make shares equal"));
  EXPECT_TRUE(finding.culprits.empty());
}

TEST(SamplerContract, UntrueLength) {
  lockstep::Run run = sampler_run(2);
  see_dataset(run, 0, {.length = 8});
  see_shard(run, 0, 0, Rank{0}, {.batches = {{0, 2, 4, 6}}, .promised = 2});
  see_shard(run, 0, 0, Rank{1}, {.batches = {{1, 3, 5, 7}}, .promised = 2});
  const Finding finding = only_finding(run);
  EXPECT_EQ(finding.code, Code::kWrongLength);
  EXPECT_EQ(finding.headline,
            "the sampler's length is untrue in epoch 0 of 8 samples: it promises 2 batches, and "
            "gives 1 on ranks 0,1");
  EXPECT_TRUE(finding.culprits.empty());
}

TEST(SamplerContract, AStreamWithoutEndThatEnds) {
  lockstep::Run run = sampler_run(2, {{"length", "infinite"}});
  see_dataset(run, 0, {.length = 6, .batches_max = 2});
  see_shard(run, 0, 0, Rank{0}, {.batches = {{0, 2, 4, 1}}});
  see_shard(run, 0, 0, Rank{1}, {.batches = {{1, 3, 5, 0}}});
  EXPECT_EQ(only_finding(run).code, Code::kWrongLength);
}

// --- LS420 to LS422
// -------------------------------------------------------------------------------------------------

TEST(SamplerContract, ASamplerThatYieldsNothingSaysSo) {
  lockstep::Run run = sampler_run(2);
  see_dataset(run, 0, {.length = 64});
  see_shard(run, 0, 0, Rank{0}, {.batches = {}, .promised = 8});
  see_shard(run, 0, 0, Rank{1}, {.batches = {}, .promised = 8});
  const Finding finding = only_finding(run);
  EXPECT_EQ(finding.code, Code::kEmptyEpoch);
  EXPECT_EQ(finding.headline,
            "the sampler yields nothing: epoch 0 of 64 samples is empty on all ranks");
  EXPECT_THAT(finding.cause, HasSubstr("its length promises 8 batches"));
  EXPECT_THAT(finding.also, Contains(Code::kWrongLength));
  EXPECT_TRUE(finding.culprits.empty());
}

TEST(SamplerContract, BatchesWithoutSamplesAreNothing) {
  lockstep::Run run = sampler_run(2);
  see_dataset(run, 0, {.length = 64});
  for (const Rank rank : {Rank{0}, Rank{1}})
    see_shard(run, 0, 0, rank, {.batches = Batches(8)});
  EXPECT_EQ(only_finding(run).code, Code::kEmptyEpoch);
}

TEST(SamplerContract, IndicesThatTheDatasetDoesNotHave) {
  const Finding finding = only_finding(one_dataset(2, {{{0}, {1}, {2}, {3}, {-1}}}));
  EXPECT_EQ(finding.code, Code::kIndexOutOfRange);
  EXPECT_THAT(finding.headline, HasSubstr("-1, 2, 3 on ranks 2-4"));
  const Finding padding = only_finding(one_dataset(2, {{{0}, {1}, {2}}}));
  EXPECT_THAT(padding.cause, HasSubstr("fewer samples than ranks (2 and 3)"));
  EXPECT_TRUE(padding.culprits.empty());
}

TEST(SamplerContract, ASampleTwiceOnOneRank) {
  Epochs epochs = healthy_epochs(kMany - 1, 3, 1);
  epochs[0][1][7] = epochs[0][1][3];
  const Finding finding = only_finding(one_dataset(kMany - 1, epochs));
  EXPECT_EQ(finding.code, Code::kSampleRepeated);
  EXPECT_EQ(finding.culprits, RankSet{Rank{1}});
  EXPECT_THAT(finding.also, Contains(Code::kSamplesMissed));
}

// The last share is filled up by more than is declared, and nothing is missed: all computed that.
TEST(SamplerContract, AShareFilledUpTooFarConvictsNobody) {
  const Finding finding = only_finding(
      one_dataset(9, {{{0, 1, 2, 3}, {4, 5, 6, 7}, {8, 8, 8, 8}}}, {{"order", "sequential"}}));
  EXPECT_EQ(finding.code, Code::kSampleRepeated);
  EXPECT_TRUE(finding.culprits.empty());
}

}  // namespace
}  // namespace lockstep::testing
