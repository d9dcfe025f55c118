// Goal: DistributedSampler is PyTorch's, bit for bit; every other sampler keeps its own contract.
// Method: known values, PyTorch's own test, 500 random cases against Python, and counting.

#include "fixtures/implementations/samplers.h"

#include <gtest/gtest.h>
#include <sys/wait.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>
#include <random>
#include <set>
#include <sstream>

#include "fixtures/implementations/bucket_sampler.h"
#include "fixtures/mutants/sampler_mutants.h"
#include "fixtures/mutants/table_samplers.h"

namespace lockstep::parallel {
namespace {

using Options = DistributedSamplerOptions;

Indices all_of(IndexSampler& sampler, std::int64_t epoch = 0) {
  sampler.set_epoch(epoch);
  Indices all;
  while (const auto index = sampler.next())
    all.push_back(*index);
  return all;
}

std::vector<Indices> all_of(BatchSampler& sampler, std::int64_t epoch = 0) {
  sampler.set_epoch(epoch);
  std::vector<Indices> all;
  while (const auto batch = sampler.next())
    all.push_back(*batch);
  return all;
}

std::vector<Indices> shards(std::int64_t length, std::int64_t world, const Options& options,
                            std::int64_t epoch = 0) {
  std::vector<Indices> shards;
  for (std::int64_t rank = 0; rank < world; ++rank) {
    DistributedSampler sampler(length, {rank, world}, options);
    shards.push_back(all_of(sampler, epoch));
    EXPECT_EQ(sampler.size(), static_cast<std::int64_t>(shards.back().size()));
  }
  return shards;
}

using Shards = std::vector<Indices>;

TEST(DistributedSampler, GivesThePermutationsOfPython) {
  EXPECT_EQ(Shuffle(0).permutation(10), (Indices{4, 1, 7, 5, 3, 9, 0, 8, 6, 2}));
  EXPECT_EQ(shards(10, 3, {.shuffle = false}), (Shards{{0, 3, 6, 9}, {1, 4, 7, 0}, {2, 5, 8, 1}}));
  EXPECT_EQ(shards(10, 3, {.shuffle = false, .drop_last = true}),
            (Shards{{0, 3, 6}, {1, 4, 7}, {2, 5, 8}}));
  EXPECT_EQ(shards(10, 3, {}), (Shards{{4, 5, 0, 2}, {1, 3, 8, 4}, {7, 9, 6, 1}}));
}

TEST(DistributedSampler, PadsBeyondTheDatasetAndMayBeEmpty) {
  EXPECT_EQ(shards(2, 5, {.shuffle = false}), (Shards{{0}, {1}, {0}, {1}, {0}}));
  EXPECT_EQ(shards(2, 5, {.drop_last = true}), Shards(5));
  EXPECT_EQ(shards(0, 3, {}), Shards(3));
  EXPECT_EQ(shards(0, 3, {.drop_last = true}), Shards(3));
}

// PyTorch's distributed_test.py::test_DistributedSampler_padding: its lengths and its counts.
TEST(DistributedSampler, PyTorchsTestOfPadding) {
  for (const std::int64_t world : {2, 3, 5, 8}) {
    const std::int64_t length = 100 + world + 1;
    const auto real_world = static_cast<double>(world);
    const auto dropped =
        static_cast<std::int64_t>(std::ceil(static_cast<double>(length - world) / real_world));
    const auto kept =
        static_cast<std::int64_t>(std::ceil(static_cast<double>(length) / real_world));
    for (const Indices& shard : shards(length, world, {.drop_last = true}))
      EXPECT_EQ(static_cast<std::int64_t>(shard.size()), dropped);
    for (const Indices& shard : shards(length, world, {}))
      EXPECT_EQ(static_cast<std::int64_t>(shard.size()), kept);
    for (const Indices& shard : shards(std::max<std::int64_t>(world / 2 - 1, 1), world, {}))
      EXPECT_EQ(shard.size(), 1U);
  }
}

struct Tuple {
  std::int64_t length{}, world{}, epoch{};
  std::uint64_t seed{};
  bool drop_last{}, shuffle{};
};

std::vector<Tuple> random_tuples() {
  std::mt19937_64 random(20);
  const auto up_to = [&](std::uint64_t most) {
    return static_cast<std::int64_t>(random() % (most + 1));
  };
  std::vector<Tuple> tuples;
  for (int i = 0; i < 500; ++i) {
    // Every fourth is a dataset about as small as the world.
    tuples.push_back({.length = up_to(i % 4 == 0 ? 9 : 700),
                      .world = 1 + up_to(8),
                      .epoch = up_to(1000),
                      .seed = random() >> (1 + i % 63),
                      .drop_last = up_to(1) == 1,
                      .shuffle = up_to(4) > 0});
  }
  return tuples;
}

TEST(DistributedSampler, IsPythonsBitForBitIn500RandomCases) {
  const std::vector<Tuple> tuples = random_tuples();
  std::error_code failed;
  const auto asked = std::filesystem::path(::testing::TempDir()) /
                     ("lockstep-sampler-tuples-" + std::to_string(getpid()));
  {
    std::ofstream file(asked);
    for (const Tuple& t : tuples)
      file << t.length << ' ' << t.world << ' ' << t.epoch << ' ' << t.seed << ' ' << t.drop_last
           << ' ' << t.shuffle << '\n';
  }
  const std::string command = "'" LOCKSTEP_PYTHON "' '" LOCKSTEP_SOURCE_DIR
                              "/tests/torch/python_samplers.py' < '" +
                              asked.string() + "' 2>&1";
  std::string answer;
  FILE* python = popen(command.c_str(), "r");
  ASSERT_NE(python, nullptr);
  char piece[4096];
  while (const std::size_t got = std::fread(piece, 1, sizeof piece, python))
    answer.append(piece, got);
  const int status = pclose(python);
  std::filesystem::remove(asked, failed);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
    GTEST_SKIP() << LOCKSTEP_PYTHON << ": " << answer;
  ASSERT_EQ(status, 0) << answer;

  std::istringstream lines(answer);
  int equal = 0;
  for (const Tuple& t : tuples) {
    const Options options{.shuffle = t.shuffle, .seed = t.seed, .drop_last = t.drop_last};
    Shards python_shards;
    for (std::int64_t rank = 0; rank < t.world; ++rank) {
      std::string line;
      ASSERT_TRUE(std::getline(lines, line));
      std::istringstream numbers(line);
      python_shards.emplace_back();
      for (std::int64_t index = 0; numbers >> index;)
        python_shards.back().push_back(index);
    }
    const bool same = shards(t.length, t.world, options, t.epoch) == python_shards;
    EXPECT_TRUE(same) << "length " << t.length << ", world " << t.world << ", epoch " << t.epoch
                      << ", seed " << t.seed << ", drop_last " << t.drop_last << ", shuffle "
                      << t.shuffle;
    equal += same ? 1 : 0;
  }
  EXPECT_EQ(equal, 500);
  std::printf("%d of 500 equal\n", equal);
}

TEST(OtherSamplers, SequentialBlocksKeepTheOrderOfTheDataset) {
  Indices gathered;
  for (std::int64_t rank = 0; rank < 3; ++rank) {
    DistributedSequentialSampler sampler(10, {rank, 3});
    const Indices block = all_of(sampler);
    EXPECT_EQ(block.size(), 4U);
    gathered.insert(gathered.end(), block.begin(), block.end());
  }
  EXPECT_EQ(gathered, (Indices{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 1}));
  DistributedSequentialSampler dropping(10, {2, 3}, true);
  EXPECT_EQ(all_of(dropping), (Indices{6, 7, 8}));
}

TEST(OtherSamplers, AStridedShardIsPythonsRange) {
  for (std::int64_t rank = 0; rank < 5; ++rank) {
    StridedShard shard(7, {rank, 5});
    EXPECT_EQ(all_of(shard), (rank < 2 ? Indices{rank, rank + 5} : Indices{rank}));
    EXPECT_EQ(shard.size(), rank < 2 ? 2 : 1);
  }
  StridedShard beyond(2, {4, 5});
  EXPECT_EQ(beyond.size(), 0);
  EXPECT_TRUE(all_of(beyond).empty());
}

TEST(OtherSamplers, ReplacementDrawsAnewAndStaysInRange) {
  std::set<Indices> drawn;
  for (std::int64_t rank = 0; rank < 3; ++rank) {
    for (std::int64_t epoch = 0; epoch < 2; ++epoch) {
      ReplacementSampler sampler(50, {rank, 3}, 7);
      const Indices indices = all_of(sampler, epoch);
      EXPECT_EQ(indices.size(), 17U);
      EXPECT_TRUE(std::all_of(indices.begin(), indices.end(),
                              [](std::int64_t index) { return index >= 0 && index < 50; }));
      drawn.insert(indices);
    }
  }
  EXPECT_EQ(drawn.size(), 6U);
  ReplacementSampler nothing(0, {0, 3});
  EXPECT_TRUE(all_of(nothing).empty());
}

// The first half of an epoch with three repeats on four ranks: of 40 samples, 40 / 3 are seen.
TEST(OtherSamplers, RepeatedAugmentationGivesTheRepeatsToDifferentRanks) {
  std::map<std::int64_t, std::set<std::int64_t>> ranks_of;
  std::size_t given = 0;
  for (std::int64_t rank = 0; rank < 4; ++rank) {
    RepeatedAugmentationSampler sampler(40, {rank, 4}, 1);
    const Indices indices = all_of(sampler);
    EXPECT_EQ(sampler.size(), 10);
    given += indices.size();
    for (const std::int64_t index : indices)
      EXPECT_TRUE(ranks_of[index].insert(rank).second) << "twice on one rank";
  }
  EXPECT_EQ(given, 40U);
  EXPECT_EQ(ranks_of.size(), 14U);
}

TEST(OtherSamplers, AnInfiniteStreamIsOnePermutationAfterTheOther) {
  std::vector<std::unique_ptr<InfiniteSampler>> samplers;
  for (std::int64_t rank = 0; rank < 3; ++rank)
    samplers.push_back(std::make_unique<InfiniteSampler>(7, Share{rank, 3}, 5));
  Indices stream;
  for (int i = 0; i < 70; ++i)
    stream.push_back(*samplers[static_cast<std::size_t>(i % 3)]->next());
  for (int pass = 0; pass < 10; ++pass) {
    Indices of_pass(stream.begin() + 7 * pass, stream.begin() + 7 * (pass + 1));
    std::sort(of_pass.begin(), of_pass.end());
    EXPECT_EQ(of_pass, in_order(7));
  }
  EXPECT_EQ(samplers[0]->size(), std::nullopt);
  InfiniteSampler one(1, {4, 5});  // Fewer samples than ranks: whole passes are skipped.
  EXPECT_EQ(one.next(), 0);
}

TEST(OtherSamplers, BatchesCutAndCount) {
  Batches batches(std::make_unique<StridedShard>(7, Share{0, 1}), 3);
  EXPECT_EQ(all_of(batches), (std::vector<Indices>{{0, 1, 2}, {3, 4, 5}, {6}}));
  EXPECT_EQ(batches.size(), 3);
  EXPECT_EQ(all_of(batches).size(), 3U) << "an epoch can be begun again";
}

TEST(OtherSamplers, RefuseWhatMakesNoSense) {
  EXPECT_THROW(DistributedSampler(-1, {0, 1}), std::invalid_argument);
  EXPECT_THROW(DistributedSampler(4, {3, 3}), std::invalid_argument);
  EXPECT_THROW(DistributedSampler(4, {-1, 3}), std::invalid_argument);
  EXPECT_THROW(InfiniteSampler(0, {0, 1}), std::invalid_argument);
  EXPECT_THROW(RepeatedAugmentationSampler(4, {0, 1}, 0, 0), std::invalid_argument);
  EXPECT_THROW(Batches(std::make_unique<StridedShard>(4, Share{}), 0), std::invalid_argument);
}

// --- Buckets
// -------------------------------------------------------------------------------------------------

const Indices kBoundaries{10, 20, 30, 40, 50};

// Lengths 10, 10, 11, ..., 20 and 41 to 50: two empty buckets between them; both ends occur.
Indices some_lengths() {
  Indices lengths{10, 50, 20, 41};
  for (std::int64_t i = 0; i < 60; ++i)
    lengths.push_back(i % 2 == 0 ? 10 + i % 11 : 41 + i % 10);
  return lengths;
}

std::size_t bucket_of(std::int64_t length) {
  for (std::size_t bucket = 0; bucket + 1 < kBoundaries.size(); ++bucket) {
    if (length <= kBoundaries[bucket + 1])
      return bucket;
  }
  return kBoundaries.size();
}

struct BucketCase {
  std::int64_t world{}, batch_size{};
  bool shuffle{}, drop_last{};
};

class Buckets : public ::testing::TestWithParam<BucketCase> {};

TEST_P(Buckets, EveryStepHasOneBucketAndEveryItemOneRank) {
  const BucketCase& c = GetParam();
  const Indices lengths = some_lengths();
  std::vector<std::vector<Indices>> by_rank;
  for (std::int64_t rank = 0; rank < c.world; ++rank) {
    DistributedBucketSampler sampler(
        lengths, kBoundaries, {rank, c.world},
        {.batch_size = c.batch_size, .shuffle = c.shuffle, .seed = 3, .drop_last = c.drop_last});
    by_rank.push_back(all_of(sampler, 2));
    EXPECT_EQ(sampler.size(), static_cast<std::int64_t>(by_rank.back().size()));
    EXPECT_EQ(by_rank.back().size(), by_rank.front().size());
  }
  std::map<std::int64_t, std::int64_t> seen;
  for (std::size_t step = 0; step < by_rank.front().size(); ++step) {
    const Indices& first = by_rank.front()[step];
    const std::size_t bucket = bucket_of(lengths[static_cast<std::size_t>(first.front())]);
    for (const std::vector<Indices>& batches : by_rank) {
      EXPECT_EQ(batches[step].size(), first.size());
      for (const std::int64_t item : batches[step]) {
        EXPECT_EQ(bucket_of(lengths[static_cast<std::size_t>(item)]), bucket);
        ++seen[item];
      }
    }
  }
  std::int64_t given = 0;
  for (const auto& [item, times] : seen)
    given += times;
  const auto items = static_cast<std::int64_t>(lengths.size());
  if (c.drop_last) {
    EXPECT_EQ(given, static_cast<std::int64_t>(seen.size()));
    EXPECT_GT(given, items - 2 * c.world * c.batch_size);
    EXPECT_EQ(given % (c.world * c.batch_size), 0);
  } else {
    EXPECT_EQ(static_cast<std::int64_t>(seen.size()), items);
    EXPECT_LT(given, items + 2 * c.world);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Cases, Buckets,
    ::testing::Values(BucketCase{1, 4, true, false}, BucketCase{2, 4, true, false},
                      BucketCase{3, 4, true, true}, BucketCase{3, 5, false, false},
                      BucketCase{5, 1, true, false}, BucketCase{5, 7, true, true},
                      BucketCase{40, 2, true, false}));

TEST(BucketSampler, ShufflesAlikeOnAllRanksAndAnewEveryEpoch) {
  DistributedBucketSampler sampler(some_lengths(), kBoundaries, {0, 2}, {.batch_size = 4});
  EXPECT_EQ(all_of(sampler, 1), all_of(sampler, 1));
  EXPECT_NE(all_of(sampler, 1), all_of(sampler, 2));
}

TEST(BucketSampler, RefusesOrDeclaresWhatIsInNoBucket) {
  const Indices lengths{9, 10, 50, 51};
  try {
    DistributedBucketSampler(lengths, kBoundaries, {}, {});
    FAIL() << "two items are in no bucket";
  } catch (const std::invalid_argument& error) {
    EXPECT_NE(std::string(error.what())
                  .find("2 items are in no bucket, the first is item 0 of "
                        "length 9; the buckets hold lengths from 10 to 50"),
              std::string::npos)
        << error.what();
  }
  DistributedBucketSampler dropping(lengths, kBoundaries, {}, {.drop_outside = true});
  EXPECT_EQ(dropping.outside(), (Indices{0, 3}));
  EXPECT_EQ(dropping.contract().outside, "drop");
  std::set<std::int64_t> given;
  for (const Indices& batch : all_of(dropping))
    given.insert(batch.begin(), batch.end());
  EXPECT_EQ(given, (std::set<std::int64_t>{1, 2}));
}

TEST(BucketSampler, RefusesBoundariesThatDoNotAscend) {
  for (const Indices& boundaries : {Indices{}, Indices{10}, Indices{10, 10}, Indices{20, 10}})
    EXPECT_THROW(DistributedBucketSampler({10}, boundaries, {}, {}), std::invalid_argument);
  EXPECT_THROW(DistributedBucketSampler({10}, kBoundaries, {}, {.batch_size = 0}),
               std::invalid_argument);
  EXPECT_THROW(DistributedBucketSampler({10}, kBoundaries, {2, 2}, {}), std::invalid_argument);
}

TEST(BucketSampler, NoItemsAreNoBatches) {
  DistributedBucketSampler sampler({}, kBoundaries, {1, 2}, {.batch_size = 4});
  EXPECT_TRUE(all_of(sampler).empty());
  EXPECT_EQ(sampler.size(), 0);
}

// --- Mutants
// -------------------------------------------------------------------------------------------------

TEST(SamplerMutants, EveryRowOfTheTableCanBeMadeAndNothingElse) {
  Indices boundaries = kBoundaries;
  mutants::SamplerRequest request;
  request.length = 64;
  request.batch_size = 4;
  request.share = {1, 3};
  request.item_lengths = some_lengths();
  request.boundaries = &boundaries;
  for (const mutants::Mutant& mutant : mutants::kSamplerMutants)
    EXPECT_NE(mutants::make_sampler_mutant(mutant.name, request, {.rank = 1}), nullptr)
        << mutant.name;
  EXPECT_EQ(mutants::make_sampler_mutant("no_such", request, {}), nullptr);
}

}  // namespace
}  // namespace lockstep::parallel
