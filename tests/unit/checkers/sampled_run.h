// Runs in which samplers were observed, typed as what each rank was given.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "checkers/sampling/sampler_contract.h"
#include "tests/support/typed_run.h"

namespace lockstep::testing {

using Numbers = std::vector<std::int64_t>;
using Batches = std::vector<Numbers>;

/// Order, draws, remainder: "shuffled", "once" and "pad" unless said otherwise.
lockstep::Run sampler_run(std::int32_t world,
                          const std::map<std::string, std::string>& contract = {});

struct Items {
  std::int64_t length{};
  std::int64_t batch_size{4};
  Numbers item_lengths{}, boundaries{};
  std::int64_t batches_max{};
};
void see_dataset(lockstep::Run& run, std::int32_t number, const Items& items);

/// What a rank was given: `promised` is as many batches as there are, unless said otherwise.
struct Given {
  Batches batches{};
  std::int64_t promised{-1};
  Numbers boundaries{};
};
void see_shard(lockstep::Run& run, std::int32_t number, std::int64_t epoch, Rank rank,
               const Given& given);

/// Samples in batches of `batch_size`.
Batches batched(const Numbers& samples, std::int64_t batch_size = 4);
/// A shuffle of 0 ... length - 1 that is the same on every machine.
Numbers shuffled(std::int64_t length, std::uint64_t seed);
/// Rank `rank`'s every world-th sample, after repeating the head (or cutting the tail).
Numbers dealt(Numbers order, std::int32_t world, std::int32_t rank, bool pad = true);

/// One dataset, by epoch and rank what was given, in batches of 4.
using Epochs = std::vector<std::vector<Numbers>>;
lockstep::Run one_dataset(std::int64_t length, const Epochs& epochs,
                          const std::map<std::string, std::string>& contract = {});
/// As a distributed sampler would have it.
Epochs healthy_epochs(std::int64_t length, std::int32_t world, std::int64_t epochs = 3,
                      bool pad = true);

inline constexpr std::int64_t kMany = 100;  // Samples enough that chance explains nothing.

inline Verdict check(const lockstep::Run& run) { return checkers::SamplerContract().check(run); }
/// Fails the test unless there is exactly one.
Finding only_finding(const lockstep::Run& run);
void expect_pass(const lockstep::Run& run);

}  // namespace lockstep::testing
