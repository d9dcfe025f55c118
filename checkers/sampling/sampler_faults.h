// What is wrong with the shares of an epoch, in words. Each function looks at epochs that every
// rank was seen in, and knows nothing of the rest of the run.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "checkers/sampling/sampled_epochs.h"
#include "checkers/sampling/share_statistics.h"
#include "harness/verdict/codes.h"

namespace lockstep::checkers {

struct Fault {
  Code code{};
  std::string headline{};
  std::string cause{};
  RankSet culprits{};  ///< Those that this evidence singles out; only to be named in a whole run.
  RankSet affected{};
};

/// Who is given which samples: empty epochs, overlap, padding, what is missed, unequal counts. The
/// most specific explanation first.
std::vector<Fault> faults_of_shares(const SamplerPromise& promise, const SampledEpoch& epoch);

/// Draws that need not be disjoint: the same on several ranks, or no draws at all.
std::vector<Fault> faults_of_draws(const SamplerPromise& promise, const SampledEpoch& epoch);

/// Batches and buckets: the caller's list, batches and steps of several buckets, untrue lengths.
std::vector<Fault> faults_of_batches(const SamplerPromise& promise, const SampledEpoch& epoch);

/// Batches of another size than was asked for, beyond the last of an epoch or bucket.
std::vector<Fault> faults_of_batch_sizes(const SamplerPromise& promise, const SampledEpoch& epoch);

/// The order that was dealt out, read back from the shares: of what is declared sequential, of
/// repeats, and of the passes of a stream.
std::vector<Fault> faults_of_dealing(const SamplerPromise& promise, const SampledEpoch& epoch);

/// Ranks that repeat in `epoch` the order of one of the earlier epochs of the dataset.
std::vector<Fault> faults_of_order(const SamplerPromise& promise,
                                   const std::vector<const SampledEpoch*>& earlier,
                                   const SampledEpoch& epoch);

/// Batches of a dataset that come in the same order of buckets in all its epochs.
std::vector<Fault> faults_of_batch_orders(const SamplerPromise& promise,
                                          const std::vector<const SampledEpoch*>& epochs);

/// Epochs of equal number that are in the same order although their seeds differ.
std::vector<Fault> faults_of_seeds(const SamplerPromise& promise,
                                   const std::vector<SampledEpoch>& epochs,
                                   const SampledEpoch& epoch);

/// Samples that no epoch of a dataset gives, although what is left out should change.
std::vector<Fault> faults_of_all_epochs(const SamplerPromise& promise,
                                        const std::vector<const SampledEpoch*>& epochs);

}  // namespace lockstep::checkers
