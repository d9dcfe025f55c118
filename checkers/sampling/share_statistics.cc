#include "checkers/sampling/share_statistics.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

namespace lockstep::checkers {
namespace {

constexpr std::size_t kListedMax = 8;
constexpr double kSharedMin = 5;  // With fewer expected in common, having none says little.

double log_factorial(std::int64_t n) { return std::lgamma(static_cast<double>(n) + 1.0); }

}  // namespace

Allowance allowance(const SamplerPromise& promise, const Dataset& dataset, std::int32_t world) {
  Allowance allowed;
  allowed.unit = world;
  if (promise.whole_batches || (promise.by_length && promise.remainder == "drop"))
    allowed.unit *= dataset.batch_size;
  if (promise.by_length) {
    allowed.groups.resize(dataset.boundaries.size() - 1);
    for (std::int64_t sample = 0; sample < dataset.length; ++sample) {
      if (const auto bucket = dataset.bucket_of(sample); bucket)
        allowed.groups[*bucket].push_back(sample);
      else if (promise.outside == "drop")
        allowed.outside.push_back(sample);
    }
    std::erase_if(allowed.groups, [](const Samples& group) { return group.empty(); });
  } else {
    allowed.groups.emplace_back();
    for (std::int64_t sample = 0; sample < dataset.length; ++sample)
      allowed.groups.back().push_back(sample);
  }
  for (const Samples& group : allowed.groups) {
    const auto dealt = static_cast<std::int64_t>(group.size()) * promise.repeats;
    if (promise.remainder == "pad")
      allowed.repeats += (allowed.unit - dealt % allowed.unit) % allowed.unit;
    if (promise.remainder == "drop")
      allowed.left_out += dealt % allowed.unit;
  }
  return allowed;
}

std::int64_t dealt_out(const SamplerPromise& promise, const Allowance& allowed) {
  std::int64_t dealt = 0;
  for (const Samples& group : allowed.groups) {
    const auto size = static_cast<std::int64_t>(group.size());
    dealt += promise.remainder == "drop" && promise.once() ? size - size % allowed.unit : size;
  }
  return dealt;
}

std::vector<std::int64_t> occurrences(const SampledEpoch& epoch, const Only& only) {
  std::vector<std::int64_t> times(static_cast<std::size_t>(epoch.dataset->length));
  for (const auto& [rank, shard] : epoch.shards) {
    if (rank == only.without)
      continue;
    std::size_t count = shard.samples.size();
    if (only.batches && *only.batches < shard.batch_sizes.size()) {
      for (std::size_t batch = *only.batches; batch < shard.batch_sizes.size(); ++batch)
        count -= static_cast<std::size_t>(shard.batch_sizes[batch]);
    }
    for (std::size_t i = 0; i < count; ++i) {
      const std::int64_t sample = shard.samples[i];
      if (sample >= 0 && sample < epoch.dataset->length)
        ++times[static_cast<std::size_t>(sample)];
    }
  }
  return times;
}

std::int64_t excess(const std::vector<std::int64_t>& occurrences, std::int64_t times) {
  std::int64_t sum = 0;
  for (const std::int64_t seen : occurrences)
    sum += std::max<std::int64_t>(seen - times, 0);
  return sum;
}

RankSet holders(const SampledEpoch& epoch, std::int64_t sample) {
  RankSet ranks;
  for (const auto& [rank, shard] : epoch.shards) {
    if (std::find(shard.samples.begin(), shard.samples.end(), sample) != shard.samples.end())
      ranks.insert(rank);
  }
  return ranks;
}

RankSet everyone_in(const SampledEpoch& epoch) {
  return RankSet::all(static_cast<std::int32_t>(epoch.shards.size()));
}

RankSet of_one_sequence(const SampledEpoch& epoch) {
  RankSet alike;
  for (const auto& [rank, shard] : epoch.shards) {
    for (const auto& [other, theirs] : epoch.shards) {
      if (rank < other && shard.samples.size() > 1 && shard.samples == theirs.samples) {
        alike.insert(rank);
        alike.insert(other);
      }
    }
  }
  return alike;
}

double log_disjoint(std::int64_t length, std::int64_t a, std::int64_t b) {
  if (a + b > length)
    return 0;  // They cannot be: nothing speaks against chance.
  return log_factorial(length - a) - log_factorial(length - a - b) - log_factorial(length) +
         log_factorial(length - b);
}

double log_same_order(std::int64_t length, std::int64_t taken) {
  return log_factorial(std::max<std::int64_t>(length - taken, 0)) - log_factorial(length);
}

double log_same_kinds(const std::vector<std::int64_t>& of_each_kind) {
  double orders = 0;
  for (const std::int64_t count : of_each_kind)
    orders += log_factorial(count);
  return orders - log_factorial(std::accumulate(of_each_kind.begin(), of_each_kind.end(), 0L));
}

double log_same_set(std::int64_t length, std::int64_t taken) {
  const std::int64_t left = std::max<std::int64_t>(length - taken, 0);
  return log_factorial(length - left) + log_factorial(left) - log_factorial(length);
}

bool look_independent(const SampledEpoch& epoch, const RankSet& some, const RankSet& others) {
  double expected = 0;
  double shared = 0;
  for (const Rank a : some) {
    const Samples& ours = epoch.shards.at(a).samples;
    const std::set<std::int64_t> held(ours.begin(), ours.end());
    for (const Rank b : others) {
      if (a == b)
        continue;
      const Samples& theirs = epoch.shards.at(b).samples;
      for (const std::int64_t sample : theirs)
        shared += held.count(sample) > 0 ? 1 : 0;
      expected += static_cast<double>(held.size()) * static_cast<double>(theirs.size()) /
                  static_cast<double>(epoch.dataset->length);
    }
  }
  return expected >= kSharedMin && shared > expected / 3 && shared < 3 * expected;
}

std::string of_samples(std::size_t count) {
  return fmt::format("{} sample{}", count, count == 1 ? "" : "s");
}

std::string name_of(const SampledEpoch& epoch) {
  return fmt::format("epoch {} of {}", epoch.epoch,
                     of_samples(static_cast<std::size_t>(epoch.dataset->length)));
}

std::string listed(const Samples& samples) {
  const std::size_t shown = std::min(samples.size(), kListedMax);
  std::string text = fmt::format(
      "{}", fmt::join(samples.begin(), samples.begin() + static_cast<std::ptrdiff_t>(shown), ", "));
  if (samples.size() > shown)
    text += fmt::format(" and {} more", samples.size() - shown);
  return text;
}

}  // namespace lockstep::checkers
