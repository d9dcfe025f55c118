#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "checkers/sampling/sampler_faults.h"
#include "harness/model/group_view.h"

namespace lockstep::checkers {
namespace {

/// Log of the probability that a fresh shuffle gives a rank the order that it had; too high rather
/// than too low.
double log_same_shuffle(const SamplerPromise& promise, const SampledEpoch& epoch, Rank rank) {
  const auto world = static_cast<std::int64_t>(epoch.shards.size());
  auto given = static_cast<std::int64_t>(epoch.shards.at(rank).samples.size());
  double chance = 0;
  for (const Samples& group :
       allowance(promise, *epoch.dataset, static_cast<std::int32_t>(world)).groups) {
    const auto size = static_cast<std::int64_t>(group.size());
    const std::int64_t taken = std::min(size / world, given);
    given -= taken;
    chance += log_same_order(size, taken);
  }
  return chance;
}

/// Samples of `groups` that nobody is given.
std::set<std::int64_t> left_out(const SampledEpoch& epoch, const Allowance& allowed) {
  const std::vector<std::int64_t> times = occurrences(epoch);
  std::set<std::int64_t> missed;
  for (const Samples& group : allowed.groups) {
    for (const std::int64_t sample : group) {
      if (times[static_cast<std::size_t>(sample)] == 0)
        missed.insert(sample);
    }
  }
  return missed;
}

}  // namespace

std::vector<Fault> faults_of_order(const SamplerPromise& promise,
                                   const std::vector<const SampledEpoch*>& earlier,
                                   const SampledEpoch& epoch) {
  if (promise.order != "shuffled")
    return {};
  for (const SampledEpoch* before : earlier) {
    RankSet alike;
    for (const auto& [rank, shard] : epoch.shards) {
      if (shard.samples == before->shards.at(rank).samples &&
          log_same_shuffle(promise, epoch, rank) < kNoChance)
        alike.insert(rank);
    }
    if (alike.empty())
      continue;
    const RankSet everyone = RankSet::all(static_cast<std::int32_t>(epoch.shards.size()));
    const bool all = alike == everyone;
    Fault fault{.code = Code::kNotReshuffled,
                .headline = fmt::format("{} has the order of epoch {} again on {}", name_of(epoch),
                                        before->epoch, all ? "every rank" : words(alike)),
                .cause = "the epoch does not reach the order: set_epoch is not called, or ignored",
                .affected = all ? everyone : everyone.minus(alike)};
    if (!all)
      fault.culprits = alike;
    return {fault};
  }
  return {};
}

std::vector<Fault> faults_of_batch_orders(const SamplerPromise& promise,
                                          const std::vector<const SampledEpoch*>& epochs) {
  if (promise.order != "shuffled" || !promise.by_length || epochs.size() < 2)
    return {};
  const SampledEpoch& first = *epochs.front();
  const auto order_in = [](const SampledEpoch& epoch) {
    return buckets_of(*epoch.dataset, epoch.shards.begin()->second);
  };
  const Buckets order = order_in(first);
  const bool always = std::all_of(epochs.begin(), epochs.end(), [&](const SampledEpoch* epoch) {
    return order_in(*epoch) == order;
  });
  std::map<std::size_t, std::int64_t> batches;
  for (const std::optional<std::size_t>& bucket : order) {
    if (!bucket)
      return {};
    ++batches[*bucket];
  }
  std::vector<std::int64_t> of_each;
  for (const auto& [bucket, count] : batches)
    of_each.push_back(count);
  const double chance = log_same_kinds(of_each) * static_cast<double>(epochs.size() - 1);
  if (!always || chance > kNoChance)
    return {};
  return {{.code = Code::kNotReshuffled,
           .headline = fmt::format(
               "the batches of dataset {} have the same order of buckets in each of {} epochs",
               first.number, epochs.size()),
           .cause = std::is_sorted(order.begin(), order.end())
                        ? "one bucket comes after the other: what is shuffled is within buckets"
                        : "the epoch does not reach the order of batches",
           .affected = RankSet::all(static_cast<std::int32_t>(first.shards.size()))}};
}

std::vector<Fault> faults_of_seeds(const SamplerPromise& promise,
                                   const std::vector<SampledEpoch>& epochs,
                                   const SampledEpoch& epoch) {
  if (promise.order != "shuffled" || !epoch.dataset->seed)
    return {};
  const RankSet everyone = RankSet::all(static_cast<std::int32_t>(epoch.shards.size()));
  for (const SampledEpoch& other : epochs) {
    if (other.number >= epoch.number || other.epoch != epoch.epoch || !other.dataset->seed ||
        *other.dataset->seed == *epoch.dataset->seed ||
        other.dataset->length != epoch.dataset->length ||
        other.dataset->item_lengths != epoch.dataset->item_lengths)
      continue;
    const bool alike = std::all_of(everyone.begin(), everyone.end(), [&](Rank rank) {
      return epoch.shards.at(rank).samples == other.shards.at(rank).samples &&
             log_same_shuffle(promise, epoch, rank) < kNoChance;
    });
    if (alike)
      return {{.code = Code::kNotReshuffled,
               .headline = fmt::format("{} has the same order with seed {} as with seed {}",
                                       name_of(epoch), *epoch.dataset->seed, *other.dataset->seed),
               .cause = "the seed does not reach the order",
               .affected = everyone}};
  }
  return {};
}

std::vector<Fault> faults_of_all_epochs(const SamplerPromise& promise,
                                        const std::vector<const SampledEpoch*>& epochs) {
  // Batches of like lengths leave out the longest, whatever the shuffle.
  if (promise.order != "shuffled" || promise.remainder != "drop" || promise.whole_batches ||
      !promise.once() || epochs.size() < 2)
    return {};
  const SampledEpoch& first = *epochs.front();
  const auto world = static_cast<std::int32_t>(first.shards.size());
  const Allowance allowed = allowance(promise, *first.dataset, world);
  const std::set<std::int64_t> never = left_out(first, allowed);
  double chance = 0;
  for (const Samples& group : allowed.groups) {
    const auto size = static_cast<std::int64_t>(group.size());
    chance += log_same_set(size, size % allowed.unit) * static_cast<double>(epochs.size() - 1);
  }
  const bool always = std::all_of(epochs.begin(), epochs.end(), [&](const SampledEpoch* epoch) {
    return left_out(*epoch, allowed) == never;
  });
  if (never.empty() || !always || chance > kNoChance)
    return {};
  const bool tail =
      *never.begin() + static_cast<std::int64_t>(never.size()) == first.dataset->length;
  const Samples samples(never.begin(), never.end());
  return {
      {.code = Code::kSamplesMissed,
       .headline = fmt::format("{} of {} are never given, in none of {} epochs: {}", samples.size(),
                               of_samples(static_cast<std::size_t>(first.dataset->length)),
                               epochs.size(), listed(samples)),
       .cause = tail ? fmt::format("the tail of {} mod {} samples is cut off before the order is "
                                   "shuffled, so it is never seen",
                                   first.dataset->length, world)
                     : "what is left out is chosen before the order is shuffled",
       .affected = RankSet::all(world)}};
}

}  // namespace lockstep::checkers
