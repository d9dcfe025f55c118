#include <fmt/format.h>

#include <cmath>

#include "checkers/sampling/sampler_faults.h"
#include "harness/model/group_view.h"

namespace lockstep::checkers {
namespace {

/// Shares that need not be disjoint, and are one and the same. With as many repeats as ranks every
/// rank is given every repeat.
void same_draws(const SampledEpoch& epoch, std::vector<Fault>& faults) {
  const RankSet alike = of_one_sequence(epoch);
  const double chance = static_cast<double>(epoch.shards.begin()->second.samples.size()) *
                        log_same_order(epoch.dataset->length, 1);
  if (alike.empty() || chance > kNoChance)
    return;
  faults.push_back({.code = Code::kShardsOverlap,
                    .headline = fmt::format("{} are given the same samples in the same order in {}",
                                            words(alike), name_of(epoch)),
                    .cause = "nothing divides by rank",
                    .affected = alike});
}

/// So many draws with replacement give some sample twice.
void no_draws(const SampledEpoch& epoch, std::vector<Fault>& faults) {
  const std::int64_t length = epoch.dataset->length;
  std::int64_t drawn = 0;
  for (const auto& [rank, shard] : epoch.shards)
    drawn += static_cast<std::int64_t>(shard.samples.size());
  if (drawn > length || excess(occurrences(epoch), 1) > 0)
    return;
  double chance = 0;
  for (std::int64_t i = 0; i < drawn; ++i)
    chance += std::log1p(-static_cast<double>(i) / static_cast<double>(length));
  if (chance > kNoChance)
    return;
  faults.push_back(
      {.code = Code::kDealtOtherwise,
       .headline = fmt::format("none of {} is given twice in {}, and the sampler declares that it "
                               "draws with replacement",
                               of_samples(static_cast<std::size_t>(drawn)), name_of(epoch)),
       .cause = "they are a permutation, or a part of one",
       .affected = everyone_in(epoch)});
}

}  // namespace

std::vector<Fault> faults_of_draws(const SamplerPromise& promise, const SampledEpoch& epoch) {
  std::vector<Fault> faults;
  if (promise.draws == "with_replacement" || promise.infinite)
    same_draws(epoch, faults);
  if (promise.draws == "with_replacement" && !promise.infinite)
    no_draws(epoch, faults);
  return faults;
}

}  // namespace lockstep::checkers
