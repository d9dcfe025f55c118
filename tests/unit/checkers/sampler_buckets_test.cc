// Goal: what only a sampler that batches by length can get wrong is said by its own code. Method:
// forty items in three buckets, of which the middle one is empty.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/metamorphic.h"
#include "tests/unit/checkers/sampled_run.h"

namespace lockstep::testing {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

const Numbers kBoundaries{10, 20, 30, 40};
const std::map<std::string, std::string> kByLength{{"batches", "by_length"}, {"outside", "refuse"}};

// Items 0 to 19: 10 to 20; items 20 to 39: 31 to 40.
Numbers item_lengths() {
  Numbers lengths;
  for (std::int64_t i = 0; i < 20; ++i)
    lengths.push_back(10 + i % 11);
  for (std::int64_t i = 0; i < 20; ++i)
    lengths.push_back(31 + i % 10);
  return lengths;
}

/// By rank and step what is given. Two ranks of 5 + 5 steps, batches of 2.
std::vector<Batches> healthy_batches(std::int32_t world) {
  std::vector<Batches> by_rank(static_cast<std::size_t>(world));
  for (std::int32_t rank = 0; rank < world; ++rank) {
    for (const std::int64_t first : {20, 0}) {
      Numbers bucket = shuffled(20, static_cast<std::uint64_t>(first));
      for (std::int64_t& item : bucket)
        item += first;
      for (Numbers& batch : batched(dealt(bucket, world, rank), 2))
        by_rank[static_cast<std::size_t>(rank)].push_back(std::move(batch));
    }
  }
  return by_rank;
}

lockstep::Run bucket_run(const std::vector<Batches>& by_rank, const Numbers& boundaries_after = {},
                         const std::map<std::string, std::string>& contract = kByLength,
                         const Numbers& lengths = item_lengths()) {
  lockstep::Run run = sampler_run(static_cast<std::int32_t>(by_rank.size()), contract);
  see_dataset(run, 0,
              {.length = static_cast<std::int64_t>(lengths.size()),
               .batch_size = 2,
               .item_lengths = lengths,
               .boundaries = kBoundaries});
  for (std::size_t rank = 0; rank < by_rank.size(); ++rank)
    see_shard(run, 0, 0, Rank{static_cast<std::int32_t>(rank)},
              {.batches = by_rank[rank],
               .boundaries = boundaries_after.empty() ? kBoundaries : boundaries_after});
  return run;
}

TEST(SamplerBuckets, Healthy) {
  for (const std::int32_t world : {2, 3, 5}) {
    const Verdict verdict = check(bucket_run(healthy_batches(world)));
    EXPECT_EQ(verdict.outcome, Outcome::kPass)
        << (verdict.findings.empty() ? verdict.reason : verdict.findings.front().headline);
  }
}

TEST(SamplerBuckets, ItemsInNoBucketAreLeftOutWhereDeclared) {
  Numbers lengths = item_lengths();
  lengths.insert(lengths.end(), {9, 41});
  EXPECT_EQ(check(bucket_run(healthy_batches(3), {},
                             {{"batches", "by_length"}, {"outside", "drop"}}, lengths))
                .outcome,
            Outcome::kPass);
  EXPECT_EQ(only_finding(bucket_run(healthy_batches(3), {}, kByLength, lengths)).code,
            Code::kSamplesMissed);
}

TEST(SamplerBuckets, AnItemExactlyAtABoundaryIsMissed) {
  std::vector<Batches> batches = healthy_batches(2);
  for (Batches& of_rank : batches) {  // Items 0 and 11 have length 10, item 10 has 20.
    for (Numbers& batch : of_rank)
      std::erase_if(batch, [](std::int64_t item) { return item == 0 || item == 10 || item == 11; });
    std::erase_if(of_rank, [](const Numbers& batch) { return batch.empty(); });
  }
  const Finding finding = only_finding(bucket_run(batches));
  EXPECT_EQ(finding.code, Code::kSamplesMissed);
  EXPECT_EQ(finding.headline, "3 of 40 samples are given to no rank in epoch 0: 0, 10, 11");
  EXPECT_THAT(finding.cause, HasSubstr("has a length exactly at a boundary (10, 20)"));
}

TEST(SamplerBuckets, AWholeBucketIsMissed) {
  std::vector<Batches> batches = healthy_batches(2);
  for (Batches& of_rank : batches)
    of_rank.erase(of_rank.begin(), of_rank.begin() + 5);
  EXPECT_EQ(only_finding(bucket_run(batches)).cause,
            "all of them are of one bucket, lengths 30 to 40");
}

TEST(SamplerBuckets, TheCallersListIsChanged) {
  const Finding finding = only_finding(bucket_run(healthy_batches(3), {10, 20, 40}));
  EXPECT_EQ(finding.code, Code::kListChanged);
  EXPECT_EQ(finding.headline,
            "the sampler changes its caller's list of boundaries: [10, 20, 30, 40] is now [10, 20, "
            "40] on ranks 0-2");
  EXPECT_TRUE(finding.culprits.empty());
}

TEST(SamplerBuckets, StepsOfSeveralBuckets) {
  std::vector<Batches> batches = healthy_batches(5);
  std::swap(batches[3][0], batches[3][3]);
  const Finding one = only_finding(bucket_run(batches));
  EXPECT_EQ(one.code, Code::kStepMixesBuckets);
  EXPECT_THAT(
      one.headline,
      HasSubstr("step 0 of epoch 0 of 40 samples (2 of 4 steps differ): lengths 10 to 20 on "
                "rank 3, lengths 30 to 40 on ranks 0-2,4"));
  EXPECT_EQ(one.culprits, RankSet{Rank{3}});
  std::swap(batches[1][0], batches[1][1]);  // Of one bucket: nothing changes.
  EXPECT_EQ(only_finding(bucket_run(batches)).culprits, RankSet{Rank{3}});
  std::swap(batches[1][0], batches[1][2]);
  std::swap(batches[2][1], batches[2][2]);
  std::swap(batches[4][1], batches[4][3]);
  std::swap(batches[0][0], batches[0][2]);
  const Finding several = only_finding(bucket_run(batches));
  EXPECT_EQ(several.code, Code::kStepMixesBuckets);
  EXPECT_TRUE(several.culprits.empty());
  EXPECT_THAT(several.cause, HasSubstr("the order of batches is not shuffled alike"));
}

/// Epochs of 5 + 5 batches on two ranks, the order of buckets as `swaps` says for each epoch.
lockstep::Run epochs_of_buckets(const std::vector<bool>& swaps) {
  std::map<std::string, std::string> contract = kByLength;
  contract["order"] = "shuffled";
  lockstep::Run run = bucket_run(healthy_batches(2), {}, contract);
  for (std::size_t epoch = 1; epoch < swaps.size(); ++epoch) {
    std::vector<Batches> batches = healthy_batches(2);
    for (std::size_t rank = 0; rank < batches.size(); ++rank) {
      for (Numbers& batch : batches[rank])  // Other items, of the same bucket.
        std::reverse(batch.begin(), batch.end());
      std::rotate(batches[rank].begin(), batches[rank].begin() + static_cast<std::int64_t>(epoch),
                  batches[rank].begin() + 5);
      if (swaps[epoch])
        std::swap(batches[rank][0], batches[rank][5]);
      see_shard(run, 0, static_cast<std::int64_t>(epoch), Rank{static_cast<std::int32_t>(rank)},
                {.batches = batches[rank], .boundaries = kBoundaries});
    }
  }
  return run;
}

TEST(SamplerBuckets, BatchesInTheSameOrderOfBuckets) {
  const Finding finding = only_finding(epochs_of_buckets({false, false, false, false, false}));
  EXPECT_EQ(finding.code, Code::kNotReshuffled);
  EXPECT_EQ(finding.headline,
            "the batches of dataset 0 have the same order of buckets in each of 5 epochs");
  EXPECT_EQ(check(epochs_of_buckets({false, false, false, true, false})).outcome, Outcome::kPass);
  // Of fewer epochs, chance may have been it.
  EXPECT_EQ(check(epochs_of_buckets({false, false, false})).outcome, Outcome::kPass);
}

TEST(SamplerBuckets, ABatchOfSeveralBuckets) {
  std::vector<Batches> batches = healthy_batches(3);
  for (Batches& of_rank : batches)
    std::swap(of_rank.front().front(), of_rank.back().front());
  const Finding finding = only_finding(bucket_run(batches));
  EXPECT_EQ(finding.code, Code::kBatchMixesBuckets);
  EXPECT_THAT(finding.headline, HasSubstr("3 batches in epoch 0 of 40 samples have items of more "
                                          "than one bucket: batch 0 of rank 0"));
}

TEST(SamplerBuckets, DeletionNeverTurnsPassIntoFailNorMovesTheBlame) {
  std::vector<Batches> odd = healthy_batches(3);
  std::swap(odd[1][0], odd[1][5]);
  for (const lockstep::Run& run : {bucket_run(healthy_batches(3)), bucket_run(odd)}) {
    for (const std::string& violation : law_violations(run, {.single_max = 60, .subsets = 20}))
      ADD_FAILURE() << violation;
  }
}

}  // namespace
}  // namespace lockstep::testing
