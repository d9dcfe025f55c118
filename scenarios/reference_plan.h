// What the reference host is asked to compute: the contract that an implementation declares, turned
// into forwards and weights by arithmetic on counts. The arithmetic of known mistakes is asked for,
// too: how far it is from the right value says what a comparison can see (its power).
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "harness/protocol/message.h"
#include "scenarios/conversation.h"
#include "scenarios/steps.h"

namespace lockstep {

/// Rows that one forward of the implementation sees: a rank's whole batch, or one replica's chunk.
struct Shard {
  Rank rank{};
  std::int64_t first{}, rows{};
};

/// By rank; with the option replicas=N the chunks of rank 0's batch, as Tensor.chunk makes them.
/// A rank without rows has a shard without rows.
std::vector<Shard> shards_of(const Case& cell, const StepPlan& plan);

/// One variant of the weighted sum.
struct Weighing {
  std::string variant{};         ///< Empty: the right one.
  std::vector<double> weight{};  ///< By shard, of each of its rows.
  std::string dtype{"float64"};
  std::optional<Rank> only_for{};
  std::vector<std::size_t> only_shards{};  ///< Empty: all; else nobody else's rows are there.
  std::uint64_t permutation{};             ///< Non-zero: rows in an order drawn from it.
  double penalty_factor{1};                ///< Of the penalty's weight.
  bool widen{true};  ///< Parameters of a narrower type are computed with as `dtype`.
};

/// The right one first.
std::vector<Weighing> weighings(const Case& cell, const Training& training, const StepPlan& plan);

/// The field `forwards` of the message `reference`. `batch_file` names the file of a rank's
/// micro-batch.
protocol::Json forwards_of(
    const Case& cell, const Training& training, const StepPlan& plan, const Weighing& how,
    const std::function<std::string(Rank rank, std::int64_t micro)>& batch_file);

}  // namespace lockstep
