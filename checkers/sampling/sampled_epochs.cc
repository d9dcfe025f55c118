#include "checkers/sampling/sampled_epochs.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "harness/model/coverage.h"
#include "harness/model/observed_values.h"

namespace lockstep::checkers {
namespace {

class Reader {
 public:
  Reader(const Run& run, Sampled& into) : run_(run), into_(into) {}

  void read() {
    for (const Observation& seen : run_.observations) {
      if (!is_phase(seen.phase, "dataset"))
        continue;
      into_.any = true;
      const std::optional<Samples> values = values_of(seen);
      if (!values)
        continue;
      const std::int32_t number = phase_index(seen.phase);
      if (seen.role == Role::kReference)
        take_dataset(tensor_name(seen.name), into_.datasets[number], *values);
      else if (seen.role == Role::kRank && seen.rank)
        take_shard(tensor_name(seen.name), number, seen, *values);
    }
    for (auto& [place, epoch] : epochs_)
      finish(epoch);
  }

 private:
  std::optional<Samples> values_of(const Observation& seen) {
    const Result<Tensor> tensor =
        run_.tensor ? run_.tensor(seen)
                    : Result<Tensor>(Error{Error::Kind::kMalformedHistory, "no tensors", ""});
    if (!tensor) {
      missing(incomplete(fmt::format("{} cannot be read: {}", seen.name, tensor.error().what)));
      return std::nullopt;
    }
    Samples values;
    values.reserve(tensor->values.size());
    for (const double value : tensor->values)
      values.push_back(static_cast<std::int64_t>(value));
    return values;
  }

  static void take_dataset(std::string_view what, Dataset& dataset, const Samples& values) {
    const std::int64_t first = values.empty() ? 0 : values.front();
    if (what == "length")
      dataset.length = first;
    else if (what == "batch_size")
      dataset.batch_size = first;
    else if (what == "batches_max")
      dataset.batches_max = first;
    else if (what == "seed")
      dataset.seed = first;
    else if (what == "boundaries")
      dataset.boundaries = values;
    else if (what == "item_lengths")
      dataset.item_lengths = values;
  }

  void take_shard(std::string_view what, std::int32_t number, const Observation& seen,
                  const Samples& values) {
    SampledEpoch& epoch = epochs_[{number, seen.step}];
    epoch.number = number;
    epoch.epoch = seen.step;
    epoch.at_ns = std::max(epoch.at_ns, seen.at_ns);
    Shard& shard = epoch.shards[*seen.rank];
    if (what == "indices") {
      shard.samples = values;
      shard.samples_seen = true;
    } else if (what == "batch_sizes") {
      shard.batch_sizes = values;
      shard.sizes_seen = true;
    } else if (what == "length" && !values.empty()) {
      shard.promised = values.front();
    } else if (what == "boundaries") {
      shard.boundaries = values;
    }
  }

  // Nothing is concluded from an epoch that was not seen whole.
  void finish(SampledEpoch& epoch) {
    const auto dataset = into_.datasets.find(epoch.number);
    if (dataset == into_.datasets.end() || dataset->second.length < 0 ||
        dataset->second.batch_size < 1) {
      missing({fmt::format("what dataset {} is was not observed", epoch.number)});
      return;
    }
    epoch.dataset = &dataset->second;
    if (into_.promise.by_length &&
        (dataset->second.boundaries.size() < 2 ||
         static_cast<std::int64_t>(dataset->second.item_lengths.size()) !=
             dataset->second.length)) {
      missing({fmt::format("the lengths of the items of dataset {} were not observed whole",
                           epoch.number)});
      return;
    }
    // Where nobody is given a sample, batches without any are none.
    if (std::all_of(epoch.shards.begin(), epoch.shards.end(), [](const auto& shard) {
          return shard.second.samples_seen && shard.second.samples.empty();
        })) {
      for (auto& [rank, shard] : epoch.shards)
        shard.batch_sizes.clear();
    }
    for (const Rank rank : RankSet::all(run_.plan.world_size)) {
      const Shard& shard = epoch.shards[rank];
      const std::int64_t batched =
          std::accumulate(shard.batch_sizes.begin(), shard.batch_sizes.end(), std::int64_t{0});
      const bool sane = std::all_of(shard.batch_sizes.begin(), shard.batch_sizes.end(),
                                    [](std::int64_t size) { return size > 0; });
      if (!shard.samples_seen || !shard.sizes_seen || !sane ||
          batched != static_cast<std::int64_t>(shard.samples.size())) {
        missing({fmt::format("the samples of rank {} in epoch {} of dataset {} were not observed",
                             rank.value, epoch.epoch, epoch.number)});
        return;
      }
    }
    into_.epochs.push_back(std::move(epoch));
  }

  void missing(Reason what) {
    if (into_.incomplete.text.empty())
      into_.incomplete = std::move(what);
  }

  const Run& run_;
  Sampled& into_;
  std::map<std::pair<std::int32_t, std::int64_t>, SampledEpoch> epochs_{};
};

SamplerPromise promise_of(const Run& run) {
  const auto word = [&](const char* name) { return run.plan.declared(name); };
  SamplerPromise promise{.order = word("order"),
                         .draws = word("draws"),
                         .remainder = word("remainder"),
                         .outside = word("outside"),
                         .shares = word("shares"),
                         .repeats_come = word("repeats_come"),
                         .batches = word("batches"),
                         .infinite = word("length") == "infinite",
                         .by_length = word("batches") == "by_length",
                         .whole_batches = word("unit") == "batches"};
  const std::string repeats = word("repeats");
  if (!repeats.empty() && repeats.size() < 10 &&
      repeats.find_first_not_of("0123456789") == std::string::npos)
    promise.repeats = std::max(1, std::stoi(repeats));
  return promise;
}

}  // namespace

std::optional<std::size_t> Dataset::bucket_of(std::int64_t sample) const {
  if (sample < 0 || static_cast<std::size_t>(sample) >= item_lengths.size())
    return std::nullopt;
  const std::int64_t item = item_lengths[static_cast<std::size_t>(sample)];
  if (boundaries.size() < 2 || item < boundaries.front() || item > boundaries.back())
    return std::nullopt;
  std::size_t bucket = 0;
  while (item > boundaries[bucket + 1])
    ++bucket;
  return bucket;
}

Buckets buckets_of(const Dataset& dataset, const Shard& shard) {
  Buckets buckets;
  std::size_t at = 0;
  for (const std::int64_t size : shard.batch_sizes) {
    std::optional<std::size_t> bucket = dataset.bucket_of(shard.samples[at]);
    for (std::int64_t i = 0; i < size; ++i, ++at) {
      if (dataset.bucket_of(shard.samples[at]) != bucket)
        bucket.reset();
    }
    buckets.push_back(bucket);
  }
  return buckets;
}

Sampled sampled(const Run& run) {
  Sampled result;
  result.promise = promise_of(run);
  Reader(run, result).read();
  return result;
}

}  // namespace lockstep::checkers
