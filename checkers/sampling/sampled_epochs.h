// What samplers gave to ranks, as observed: every rank's share of every epoch of every dataset,
// what the datasets are, and what the sampler declares of all shares together.
//
// Observations: the scenario's own "dataset/..." (what was asked for, role reference) and a rank's
// "sampler/...", in phase "dataset/K"; the step is the epoch.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "harness/base/rank_set.h"
#include "harness/history/run.h"
#include "harness/verdict/verdict.h"

namespace lockstep::checkers {

using Samples = std::vector<std::int64_t>;

struct Dataset {
  std::int64_t length{-1};                    ///< Negative: not observed.
  std::int64_t batch_size{0};                 ///< 0: not observed.
  Samples item_lengths{}, boundaries{};       ///< Empty unless batches go by length.
  std::optional<std::int64_t> seed{};         ///< Of its orders.
  std::optional<std::int64_t> batches_max{};  ///< Asked for, where an epoch has no end.

  /// The bucket of a sample: (boundaries[i], boundaries[i + 1]], the first one closed. None if its
  /// length is in no bucket.
  [[nodiscard]] std::optional<std::size_t> bucket_of(std::int64_t sample) const;
};

using Buckets = std::vector<std::optional<std::size_t>>;

/// What one rank was given in one epoch.
struct Shard {
  Samples samples{};
  Samples batch_sizes{};
  std::optional<std::int64_t> promised{};  ///< Batches: the sampler's own length.
  std::optional<Samples> boundaries{};     ///< The caller's list, after the sampler had it.
  bool samples_seen{}, sizes_seen{};
};

/// One epoch as every rank saw it.
struct SampledEpoch {
  std::int32_t number{};  ///< Of the dataset.
  const Dataset* dataset{};
  std::int64_t epoch{};
  std::map<Rank, Shard> shards{};
  std::uint64_t at_ns{};
};

/// The contract words of a sampler; see fixtures/implementations/samplers.h. Empty: not declared.
struct SamplerPromise {
  std::string order{}, draws{}, remainder{}, outside{}, shares{}, repeats_come{};
  std::string batches{};  ///< "own": of sizes of its own; "partial": several may be smaller.
  std::int64_t repeats{1};
  bool infinite{};
  bool by_length{};
  bool whole_batches{};  ///< The remainder is what is no whole batch of every rank.

  [[nodiscard]] bool once() const { return draws == "once" && !infinite; }
};

struct Sampled {
  SamplerPromise promise{};
  std::map<std::int32_t, Dataset> datasets{};
  std::vector<SampledEpoch> epochs{};  ///< Those seen on every rank, by dataset and epoch.
  bool any{};                          ///< Something of a sampler was observed.
  Reason incomplete{};                 ///< What is missing, if anything.
};

Sampled sampled(const Run& run);

/// By batch: its bucket, none where it mixes several.
Buckets buckets_of(const Dataset& dataset, const Shard& shard);

}  // namespace lockstep::checkers
