// Counting over the shares of one epoch: what is given too often, what to nobody, what the
// contract allows of either, and how likely chance is.
#pragma once

#include <optional>
#include <vector>

#include "checkers/sampling/sampled_epochs.h"

namespace lockstep::checkers {

/// Log of one in 10^9: what chance does less often is no chance.
inline constexpr double kNoChance = -20.7;

/// What a contract allows in one epoch of one dataset.
struct Allowance {
  std::int64_t repeats{};         ///< Samples given again, to fill up shares.
  std::int64_t left_out{};        ///< Samples given to nobody, besides those `outside`.
  Samples outside{};              ///< By contract given to nobody: in no bucket.
  std::vector<Samples> groups{};  ///< What is dealt out together: a bucket, or all samples.
  std::int64_t unit{1};           ///< Shares of a group are made equal in steps of this many.
};

Allowance allowance(const SamplerPromise& promise, const Dataset& dataset, std::int32_t world);

/// Samples of one epoch that belong into somebody's share.
std::int64_t dealt_out(const SamplerPromise& promise, const Allowance& allowed);

/// How often each sample is given, leaving out one rank, or what comes after so many batches.
struct Only {
  std::optional<Rank> without{};
  std::optional<std::size_t> batches{};
};
std::vector<std::int64_t> occurrences(const SampledEpoch& epoch, const Only& only = {});

/// Samples given more than `times` times, each as often as it is too many.
std::int64_t excess(const std::vector<std::int64_t>& occurrences, std::int64_t times);

/// The ranks whose share holds the sample.
RankSet holders(const SampledEpoch& epoch, std::int64_t sample);

RankSet everyone_in(const SampledEpoch& epoch);
/// Ranks that were given the very same, more than one sample.
RankSet of_one_sequence(const SampledEpoch& epoch);

/// Log of the probability that two shares of `a` and `b` samples, drawn independently from
/// `length`, have nothing in common.
double log_disjoint(std::int64_t length, std::int64_t a, std::int64_t b);
/// Log of the probability that a random order of `taken` out of `length` samples is a given one.
double log_same_order(std::int64_t length, std::int64_t taken);
/// Log of the probability that in a random order of things of several kinds, this many of each,
/// every place has the kind that it has in a given one.
double log_same_kinds(const std::vector<std::int64_t>& of_each_kind);
/// Log of the probability that `taken` random ones out of `length` are given ones.
double log_same_set(std::int64_t length, std::int64_t taken);

/// Whether the shares of `some` have as much in common with those of `others` as if both were drawn
/// independently, so neither one order divided nor neighbouring blocks.
bool look_independent(const SampledEpoch& epoch, const RankSet& some, const RankSet& others);

/// "1 sample", "12 samples"; "epoch 2 of 12 samples".
std::string of_samples(std::size_t count);
std::string name_of(const SampledEpoch& epoch);
/// "3, 8, 9 and 12 more".
std::string listed(const Samples& samples);

}  // namespace lockstep::checkers
