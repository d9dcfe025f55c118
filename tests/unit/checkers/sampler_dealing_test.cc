// Goal: the order that is dealt out is the declared one, read back from the shares; batches have
// the size that was asked for; a seed reaches the order. Method: shares typed by hand, each beside
// a healthy twin, and beside one of which nothing is declared.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/checkers/sampled_run.h"

namespace lockstep::testing {
namespace {

using ::testing::HasSubstr;
using Words = std::map<std::string, std::string>;

const Words kStrided{{"order", "sequential"}, {"shares", "strided"}};
const Words kBlocks{{"order", "sequential"}, {"shares", "blocks"}};

/// Three epochs that are all alike.
Epochs alike(const std::vector<Numbers>& shares) { return {shares, shares, shares}; }

TEST(DealtOrder, SequentialOneByOne) {
  expect_pass(one_dataset(7, alike({{0, 3, 6}, {1, 4, 0}, {2, 5, 1}}), kStrided));
  const Finding finding =
      only_finding(one_dataset(7, alike({{3, 0, 6}, {4, 1, 0}, {5, 2, 1}}), kStrided));
  EXPECT_EQ(finding.code, Code::kDealtOtherwise);
  EXPECT_THAT(finding.headline, HasSubstr("sample 3 in place 0, where 0 belongs"));
  EXPECT_TRUE(finding.culprits.empty());
}

TEST(DealtOrder, SequentialInBlocks) {
  expect_pass(one_dataset(6, alike({{0, 1}, {2, 3}, {4, 5}}), kBlocks));
  EXPECT_EQ(only_finding(one_dataset(6, alike({{0, 3}, {1, 4}, {2, 5}}), kBlocks)).code,
            Code::kDealtOtherwise);
}

TEST(DealtOrder, IsNotJudgedUndeclaredOrUnreadable) {
  expect_pass(one_dataset(6, alike({{0, 3}, {1, 4}, {2, 5}}), {{"order", "sequential"}}));
  // Shares of such lengths are dealt from no one order: that is said, and no more.
  const Finding finding = only_finding(one_dataset(6, alike({{0}, {1, 3, 4}, {2, 5}}), kStrided));
  EXPECT_EQ(finding.code, Code::kUnequalLengths);
  EXPECT_TRUE(finding.also.empty());
}

TEST(DealtOrder, RepeatsInARow) {
  const Words words{{"draws", "repeated"}, {"repeats", "2"},      {"order", "sequential"},
                    {"shares", "strided"}, {"remainder", "keep"}, {"repeats_come", "in_a_row"}};
  expect_pass(one_dataset(4, alike({{3, 1}, {3, 1}}), words));
  const Finding finding = only_finding(one_dataset(4, alike({{3, 3}, {1, 1}}), words));
  EXPECT_EQ(finding.code, Code::kDealtOtherwise);
  EXPECT_THAT(finding.headline, HasSubstr("sample 3 is followed by 1"));
}

TEST(DealtOrder, PassesOfAStream) {
  const Words words{{"length", "infinite"}, {"shares", "strided"}, {"order", "sequential"}};
  const auto stream = [&](const std::vector<Numbers>& shares) {
    lockstep::Run run = sampler_run(2, words);
    see_dataset(run, 0, {.length = 4, .batch_size = 3, .batches_max = 1});
    for (std::size_t rank = 0; rank < shares.size(); ++rank)
      see_shard(run, 0, 0, Rank{static_cast<std::int32_t>(rank)}, {.batches = {shares[rank]}});
    return run;
  };
  expect_pass(stream({{3, 0, 2}, {1, 2, 1}}));
  EXPECT_EQ(only_finding(stream({{3, 0, 2}, {1, 3, 1}})).code, Code::kShardsOverlap);
}

/// Of three ranks: rank 0's seed for each pass, then those of the others.
lockstep::Run undeclared_stream(const std::vector<std::uint64_t>& seeds, std::int32_t divided_by,
                                std::size_t passes = 6) {
  constexpr std::int64_t kSamples = 600;
  lockstep::Run run = sampler_run(3, {{"length", "infinite"}, {"remainder", "keep"}});
  const auto batches = static_cast<std::int64_t>(passes) * kSamples / divided_by / 4;
  see_dataset(run, 0, {.length = kSamples, .batches_max = batches});
  for (std::int32_t rank = 0; rank < 3; ++rank) {
    Numbers all;
    for (std::uint64_t pass = 0; pass < passes; ++pass) {
      const Numbers order = shuffled(kSamples, seeds[static_cast<std::size_t>(rank)] + pass * 10);
      const Numbers part = dealt(order, divided_by, rank % divided_by);
      all.insert(all.end(), part.begin(), part.end());
    }
    see_shard(run, 0, 0, Rank{rank}, {.batches = batched(all)});
  }
  return run;
}

TEST(DealtOrder, FirstPassOfAStreamThatNobodyDeclares) {
  expect_pass(undeclared_stream({1, 1, 1}, 3));
  const Finding finding = only_finding(undeclared_stream({1, 2, 3}, 3));
  EXPECT_EQ(finding.code, Code::kShardsOverlap);
  EXPECT_THAT(finding.headline, HasSubstr("in the first pass of the stream"));
  EXPECT_TRUE(finding.culprits.empty());
  // Each goes through all by itself; and where less than a pass was seen, nobody knows.
  expect_pass(undeclared_stream({1, 2, 3}, 1, 2));
  expect_pass(undeclared_stream({1, 2, 3}, 3, 2));
}

TEST(BatchSizes, OnlyTheLastMayBeSmaller) {
  const auto run = [](const Batches& batches, Words words = {{"remainder", "keep"}}) {
    lockstep::Run one = sampler_run(1, words);
    see_dataset(one, 0, {.length = 6});
    see_shard(one, 0, 0, Rank{0}, {.batches = batches});
    return one;
  };
  expect_pass(run({{0, 1, 2, 3}, {4, 5}}));
  const Finding finding = only_finding(run({{0, 1}, {2, 3, 4, 5}}));
  EXPECT_EQ(finding.code, Code::kBatchSize);
  EXPECT_THAT(finding.headline, HasSubstr("only the last batch may be smaller"));
  EXPECT_EQ(only_finding(run({{0, 1, 2, 3, 4, 5}})).code, Code::kBatchSize);
}

lockstep::Run by_length(const Batches& batches, const char* remainder) {
  lockstep::Run run =
      sampler_run(1, {{"batches", "by_length"}, {"remainder", remainder}, {"shares", "strided"}});
  see_dataset(
      run, 0,
      {.length = 6, .batch_size = 2, .item_lengths = {1, 1, 1, 9, 9, 9}, .boundaries = {0, 5, 10}});
  see_shard(run, 0, 0, Rank{0}, {.batches = batches, .boundaries = {0, 5, 10}});
  return run;
}

TEST(BatchSizes, OneRestForEachBucketAndNoneWhereItIsDropped) {
  expect_pass(by_length({{0, 2}, {3}, {1}, {4, 5}}, "pad"));
  EXPECT_EQ(only_finding(by_length({{0}, {2}, {1}, {3}, {4, 5}}, "pad")).code, Code::kBatchSize);
  expect_pass(by_length({{0, 2}, {4, 5}}, "drop"));
  const Finding finding = only_finding(by_length({{0, 2}, {3}, {4, 5}}, "drop"));
  EXPECT_EQ(finding.code, Code::kBatchSize);
  EXPECT_THAT(finding.headline, HasSubstr("declared to be dropped"));
}

TEST(DealtOrder, BucketsInTheirOrder) {
  lockstep::Run run = by_length({{0, 1}, {2}, {3, 4}, {5}}, "pad");
  run.plan.contract["order"] = "sequential";
  expect_pass(run);
  run = by_length({{3, 4}, {5}, {0, 1}, {2}}, "pad");
  run.plan.contract["order"] = "sequential";
  EXPECT_EQ(only_finding(run).code, Code::kDealtOtherwise);
}

TEST(DealtOrder, ASeedReachesIt) {
  const auto two_seeds = [](std::uint64_t other_order, std::int64_t other_seed) {
    lockstep::Run run = sampler_run(2);
    for (std::int32_t number = 0; number < 2; ++number) {
      see_dataset(run, number, {.length = kMany});
      observe(run, std::nullopt, "dataset/seed", 0, "dataset/" + std::to_string(number),
              {number == 0 ? 1.0 : static_cast<double>(other_seed)}, "", Role::kReference, "I64");
      for (std::int32_t rank = 0; rank < 2; ++rank)
        see_shard(
            run, number, 0, Rank{rank},
            {.batches = batched(dealt(shuffled(kMany, number == 0 ? 5 : other_order), 2, rank))});
    }
    return run;
  };
  expect_pass(two_seeds(6, 2));
  expect_pass(two_seeds(5, 1));
  const Finding finding = only_finding(two_seeds(5, 2));
  EXPECT_EQ(finding.code, Code::kNotReshuffled);
  EXPECT_THAT(finding.headline, HasSubstr("seed 2 as with seed 1"));
}

}  // namespace
}  // namespace lockstep::testing
