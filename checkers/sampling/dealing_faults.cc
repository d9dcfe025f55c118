#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "checkers/sampling/sampler_faults.h"
#include "harness/model/group_view.h"

namespace lockstep::checkers {
namespace {

/// The order that was dealt out to these lists by rank. None where no dealing of one order gives
/// lists of such lengths: then they have another fault.
std::optional<Samples> dealt(const std::string& shares, const std::vector<Samples>& by_rank) {
  Samples order;
  if (shares == "blocks") {
    for (const Samples& samples : by_rank)
      order.insert(order.end(), samples.begin(), samples.end());
    return order;
  }
  const std::size_t most = by_rank.front().size();
  std::size_t least = most;
  for (const Samples& samples : by_rank) {
    if (samples.size() > least || samples.size() + 1 < most)
      return std::nullopt;
    least = samples.size();
  }
  for (std::size_t i = 0; i < most; ++i) {
    for (const Samples& samples : by_rank) {
      if (i < samples.size())
        order.push_back(samples[i]);
    }
  }
  return order;
}

/// What is dealt out together, by rank: all samples, or with `bucket` those of a bucket.
std::vector<Samples> lists(const SampledEpoch& epoch, std::optional<std::size_t> bucket) {
  std::vector<Samples> by_rank;
  for (const auto& [rank, shard] : epoch.shards) {
    by_rank.emplace_back();
    for (const std::int64_t sample : shard.samples) {
      if (!bucket || epoch.dataset->bucket_of(sample) == bucket)
        by_rank.back().push_back(sample);
    }
  }
  return by_rank;
}

Fault dealt_otherwise(const SampledEpoch& epoch, std::string headline) {
  return {.code = Code::kDealtOtherwise,
          .headline = std::move(headline),
          .cause = "",
          .affected = everyone_in(epoch)};
}

/// Of samples that come in the order of the dataset, the first one that does not. What fills up
/// comes behind them.
std::optional<Fault> out_of_sequence(const SampledEpoch& epoch, const Samples& order,
                                     const Samples& expected) {
  for (std::size_t i = 0; i < std::min(order.size(), expected.size()); ++i) {
    if (order[i] != expected[i])
      return dealt_otherwise(
          epoch, fmt::format("the order is declared sequential, and {} has sample {} in place {}, "
                             "where {} belongs",
                             name_of(epoch), order[i], i, expected[i]));
  }
  return std::nullopt;
}

std::vector<Fault> faults_of_sequence(const SamplerPromise& promise, const SampledEpoch& epoch) {
  const Allowance allowed =
      allowance(promise, *epoch.dataset, static_cast<std::int32_t>(epoch.shards.size()));
  std::optional<std::size_t> last;
  for (const Samples& group : allowed.groups) {
    const auto bucket =
        promise.by_length ? epoch.dataset->bucket_of(group.front()) : std::optional<std::size_t>{};
    const auto order = dealt(promise.shares, lists(epoch, bucket));
    if (!order)
      continue;
    if (auto fault = out_of_sequence(epoch, *order, group))
      return {std::move(*fault)};
  }
  for (const auto& [rank, shard] : epoch.shards) {
    if (!promise.by_length)
      break;
    last.reset();
    for (const std::int64_t sample : shard.samples) {
      const auto bucket = epoch.dataset->bucket_of(sample);
      if (bucket && last && *bucket < *last)
        return {dealt_otherwise(
            epoch, fmt::format("the order is declared sequential, and in {} rank {} has a batch "
                               "of bucket {} behind one of bucket {}",
                               name_of(epoch), rank.value, *bucket, *last))};
      last = bucket ? bucket : last;
    }
  }
  return {};
}

std::vector<Fault> faults_of_repeats(const SamplerPromise& promise, const SampledEpoch& epoch,
                                     const Samples& order) {
  const auto whole = static_cast<std::size_t>(epoch.dataset->length * promise.repeats);
  const std::size_t end = std::min(order.size(), whole);
  for (std::size_t i = 0; i < end; i += static_cast<std::size_t>(promise.repeats)) {
    for (std::size_t k = i; k < std::min(end, i + static_cast<std::size_t>(promise.repeats)); ++k) {
      if (order[k] != order[i])
        return {dealt_otherwise(
            epoch,
            fmt::format("the {} repeats of a sample are declared to come in a row, and in {} "
                        "sample {} is followed by {}",
                        promise.repeats, name_of(epoch), order[i], order[k]))};
    }
  }
  return {};
}

/// A stream gives every sample once before any comes again.
std::vector<Fault> faults_of_stream(const SamplerPromise& promise, const SampledEpoch& epoch,
                                    const Samples& order) {
  const auto length = static_cast<std::size_t>(std::max<std::int64_t>(epoch.dataset->length, 1));
  Samples before;
  for (std::size_t begin = 0; begin < order.size(); begin += length) {
    const auto first = order.begin() + static_cast<std::ptrdiff_t>(begin);
    const Samples pass(first,
                       first + static_cast<std::ptrdiff_t>(std::min(length, order.size() - begin)));
    const std::set<std::int64_t> different(pass.begin(), pass.end());
    if (different.size() < pass.size())
      return {{.code = Code::kShardsOverlap,
               .headline = fmt::format("{} samples come again in {} before all others have come",
                                       pass.size() - different.size(), name_of(epoch)),
               .cause = "ranks do not divide one stream: each draws its own, or takes other places",
               .affected = everyone_in(epoch)}};
    if (promise.order == "shuffled" && pass == before &&
        log_same_order(epoch.dataset->length, epoch.dataset->length) < kNoChance)
      return {{.code = Code::kNotReshuffled,
               .headline = fmt::format("two passes of {} are in one order", name_of(epoch)),
               .cause = "",
               .affected = everyone_in(epoch)}};
    before = pass;
  }
  return {};
}

/// Batches that are not full, by what they are the rest of.
std::map<std::optional<std::size_t>, std::size_t> incomplete(const SamplerPromise& promise,
                                                             const SampledEpoch& epoch,
                                                             const Shard& shard, bool* too_large) {
  std::map<std::optional<std::size_t>, std::size_t> found;
  std::size_t at = 0;
  for (std::size_t batch = 0; batch < shard.batch_sizes.size(); ++batch) {
    const std::int64_t size = shard.batch_sizes[batch];
    const auto bucket = promise.by_length ? epoch.dataset->bucket_of(shard.samples[at])
                                          : std::optional<std::size_t>{};
    const bool last = batch + 1 == shard.batch_sizes.size();
    *too_large |= size > epoch.dataset->batch_size;
    if (size < epoch.dataset->batch_size)
      found[bucket] += promise.by_length || (last && !promise.infinite) ? 1 : 2;
    at += static_cast<std::size_t>(size);
  }
  return found;
}

/// Of a stream of which nobody says how it is dealt: in its first pass no sample is for two ranks,
/// unless every rank goes through all of them by itself. Three quarters of a share are looked at,
/// so that none has begun another pass.
std::vector<Fault> faults_of_first_pass(const SampledEpoch& epoch) {
  const auto length = static_cast<std::size_t>(std::max<std::int64_t>(epoch.dataset->length, 0));
  const std::size_t world = epoch.shards.size();
  const std::size_t taken = length / world * 3 / 4;
  if (epoch.epoch != 0 || world < 2 || taken == 0)
    return {};
  std::map<std::int64_t, RankSet> holders;
  double chance = 0;  // That draws with replacement are as distinct.
  for (const auto& [rank, shard] : epoch.shards) {
    if (shard.samples.size() < length)
      return {};
    const auto first = shard.samples.begin();
    const auto distinct = [&](std::size_t count) {
      return std::set(first, first + static_cast<std::ptrdiff_t>(count)).size() == count;
    };
    if (!distinct(taken) || distinct(length))
      return {};
    for (std::size_t i = 0; i < taken; ++i) {
      holders[shard.samples[i]].insert(rank);
      chance += std::log1p(-static_cast<double>(i) / static_cast<double>(length));
    }
  }
  Samples shared;
  for (const auto& [sample, ranks] : holders) {
    if (ranks.size() > 1)
      shared.push_back(sample);
  }
  const double pairs = static_cast<double>(world * (world - 1)) / 2;
  const double expected =
      pairs * static_cast<double>(taken) * static_cast<double>(taken) / static_cast<double>(length);
  if (chance > kNoChance || static_cast<double>(shared.size()) < expected / 3)
    return {};
  return {{.code = Code::kShardsOverlap,
           .headline = fmt::format("{} of {} are given to more than one rank in the first pass of "
                                   "the stream: {}",
                                   shared.size(), of_samples(length), listed(shared)),
           .cause = "every rank takes its part of an order of its own: what they divide is not "
                    "shuffled alike",
           .affected = RankSet::all(static_cast<std::int32_t>(world))}};
}

}  // namespace

std::vector<Fault> faults_of_batch_sizes(const SamplerPromise& promise, const SampledEpoch& epoch) {
  const bool none_left = promise.by_length && promise.remainder == "drop";
  if (promise.batches == "own")
    return {};
  RankSet ranks;
  bool too_large = false;
  for (const auto& [rank, shard] : epoch.shards) {
    const auto found = incomplete(promise, epoch, shard, &too_large);
    const bool wrong = std::any_of(found.begin(), found.end(), [&](const auto& rest) {
      return promise.batches != "partial" && rest.second > (none_left ? 0U : 1U);
    });
    if (wrong || too_large)
      ranks.insert(rank);
    if (too_large)
      break;
  }
  if (ranks.empty())
    return {};
  return {{.code = Code::kBatchSize,
           .headline =
               fmt::format("{} has batches that are {} on {}: {} samples were asked for, and {}",
                           name_of(epoch), too_large ? "too large" : "not full", words(ranks),
                           epoch.dataset->batch_size,
                           none_left ? "what does not fill a batch is declared to be dropped"
                                     : "only the last batch may be smaller"),
           .cause = "",
           .affected = ranks}};
}

std::vector<Fault> faults_of_dealing(const SamplerPromise& promise, const SampledEpoch& epoch) {
  if (promise.shares.empty() && promise.infinite && promise.draws == "once")
    return faults_of_first_pass(epoch);
  if (promise.shares.empty() || epoch.shards.empty())
    return {};
  if (promise.order == "sequential" && promise.once())
    return faults_of_sequence(promise, epoch);
  if (promise.by_length)
    return {};
  const auto order = dealt(promise.shares, lists(epoch, std::nullopt));
  if (!order)
    return {};
  if (promise.draws == "repeated" && promise.repeats_come == "in_a_row" && !promise.infinite)
    return faults_of_repeats(promise, epoch, *order);
  if (promise.infinite && promise.draws == "once")
    return faults_of_stream(promise, epoch, *order);
  return {};
}

}  // namespace lockstep::checkers
