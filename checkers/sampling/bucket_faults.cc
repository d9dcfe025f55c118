#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "checkers/blame/attribution.h"
#include "checkers/sampling/sampler_faults.h"
#include "harness/model/group_view.h"

namespace lockstep::checkers {
namespace {

class BatchesOfEpoch {
 public:
  BatchesOfEpoch(const SamplerPromise& promise, const SampledEpoch& epoch)
      : promise_(promise),
        epoch_(epoch),
        data_(*epoch.dataset),
        world_(static_cast<std::int32_t>(epoch.shards.size())),
        everyone_(RankSet::all(world_)) {}

  std::vector<Fault> faults() {
    if (promise_.by_length) {
      list_changed();
      mixed_batches();
      mixed_steps();
    }
    wrong_length();
    return std::move(faults_);
  }

 private:
  void list_changed() {
    RankSet ranks;
    const Samples* list = nullptr;
    for (const auto& [rank, shard] : epoch_.shards) {
      if (!shard.boundaries || *shard.boundaries == data_.boundaries)
        continue;
      ranks.insert(rank);
      list = &*shard.boundaries;
    }
    if (list == nullptr)
      return;
    faults_.push_back(
        {.code = Code::kListChanged,
         .headline = fmt::format(
             "the sampler changes its caller's list of boundaries: [{}] is now [{}] on {}",
             fmt::join(data_.boundaries, ", "), fmt::join(*list, ", "), words(ranks)),
         .cause = list->size() < data_.boundaries.size()
                      ? "buckets without items are taken out of the list itself: the next sampler "
                        "made from it has fewer"
                      : "",
         .affected = ranks});
  }

  void mixed_batches() {
    std::size_t mixed = 0;
    std::string first;
    RankSet ranks;
    for (const auto& [rank, shard] : epoch_.shards) {
      const auto buckets = buckets_of(data_, shard);
      std::size_t at = 0;
      for (std::size_t batch = 0; batch < buckets.size(); ++batch) {
        const auto size = static_cast<std::size_t>(shard.batch_sizes[batch]);
        if (!buckets[batch]) {
          if (++mixed == 1)
            first = fmt::format("batch {} of rank {} has items of lengths {}", batch, rank.value,
                                lengths(shard, at, size));
          ranks.insert(rank);
        }
        at += size;
      }
    }
    if (mixed == 0)
      return;
    faults_.push_back(
        {.code = Code::kBatchMixesBuckets,
         .headline = fmt::format("{} in {} {} items of more than one bucket: {}",
                                 mixed == 1 ? "1 batch" : fmt::format("{} batches", mixed),
                                 name_of(epoch_), mixed == 1 ? "has" : "have", first),
         .cause = "batches are cut across the end of a bucket",
         .affected = ranks});
  }

  [[nodiscard]] std::string lengths(const Shard& shard, std::size_t from, std::size_t count) const {
    std::set<std::int64_t> lengths;
    for (std::size_t i = from; i < from + count; ++i) {
      const std::int64_t sample = shard.samples[i];
      if (sample >= 0 && sample < data_.length)
        lengths.insert(data_.item_lengths[static_cast<std::size_t>(sample)]);
    }
    return listed({lengths.begin(), lengths.end()});
  }

  void mixed_steps() {
    std::map<Rank, Buckets> buckets;
    std::size_t steps = epoch_.shards.begin()->second.batch_sizes.size();
    for (const auto& [rank, shard] : epoch_.shards) {
      buckets[rank] = buckets_of(data_, shard);
      steps = std::min(steps, buckets[rank].size());
    }
    std::size_t mixed = 0;
    std::size_t first = 0;
    for (std::size_t step = steps; step-- > 0;) {
      std::set<std::size_t> here;
      for (const auto& [rank, of_rank] : buckets) {
        if (of_rank[step])
          here.insert(*of_rank[step]);
      }
      if (here.size() > 1) {
        ++mixed;
        first = step;
      }
    }
    if (mixed == 0)
      return;
    Fault fault{.code = Code::kStepMixesBuckets,
                .headline = mixed_headline(buckets, first, mixed, steps),
                .affected = everyone_};
    std::map<Buckets, RankSet> classes;
    std::set<Buckets> sorted;
    for (auto& [rank, of_rank] : buckets) {
      classes[of_rank].insert(rank);
      std::sort(of_rank.begin(), of_rank.end());
      sorted.insert(of_rank);
    }
    if (sorted.size() == 1)
      fault.cause =
          "ranks have the same buckets in different orders: the order of batches is not "
          "shuffled alike";
    for (const auto& [order, ranks] : classes) {
      if (is_majority(ranks.size(), everyone_.size()))
        fault.culprits = everyone_.minus(ranks);
    }
    faults_.push_back(std::move(fault));
  }

  [[nodiscard]] std::string mixed_headline(const std::map<Rank, Buckets>& buckets, std::size_t step,
                                           std::size_t mixed, std::size_t steps) const {
    std::map<std::size_t, RankSet> here;
    for (const auto& [rank, of_rank] : buckets) {
      if (of_rank[step])
        here[*of_rank[step]].insert(rank);
    }
    std::vector<std::string> parts;
    for (const auto& [bucket, ranks] : here) {
      parts.push_back(fmt::format("lengths {} to {} on {}", data_.boundaries[bucket],
                                  data_.boundaries[bucket + 1], words(ranks)));
    }
    return fmt::format(
        "ranks have batches of different buckets at step {} of {} ({} of {} steps "
        "differ): {}",
        step, name_of(epoch_), mixed, steps, fmt::join(parts, ", "));
  }

  void wrong_length() {
    RankSet ranks;
    std::string first;
    for (const auto& [rank, shard] : epoch_.shards) {
      const auto given = static_cast<std::int64_t>(shard.batch_sizes.size());
      const std::int64_t promised =
          promise_.infinite ? data_.batches_max.value_or(given) : shard.promised.value_or(given);
      if (promised == given)
        continue;
      if (ranks.empty())
        first =
            promise_.infinite
                ? fmt::format("no end, and gives {} of the {} that were asked for", given, promised)
                : fmt::format("{} batches, and gives {}", promised, given);
      ranks.insert(rank);
    }
    if (ranks.empty())
      return;
    faults_.push_back({.code = Code::kWrongLength,
                       .headline = fmt::format("the sampler's length is untrue in {}: it promises "
                                               "{} on {}",
                                               name_of(epoch_), first, words(ranks)),
                       .cause = "",
                       .affected = ranks});
  }

  const SamplerPromise& promise_;
  const SampledEpoch& epoch_;
  const Dataset& data_;
  std::int32_t world_;
  RankSet everyone_;
  std::vector<Fault> faults_{};
};

}  // namespace

std::vector<Fault> faults_of_batches(const SamplerPromise& promise, const SampledEpoch& epoch) {
  return BatchesOfEpoch(promise, epoch).faults();
}

}  // namespace lockstep::checkers
