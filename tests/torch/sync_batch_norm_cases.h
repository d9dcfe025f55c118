// What SyncBatchNorm is compared with: the same layer over the concatenated batch in one process,
// in float64, with the data, losses and derivatives that both sides compute.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "fixtures/implementations/sync_batch_norm.h"

namespace lockstep::test {

using Tensors = std::vector<at::Tensor>;

struct Setting {
  std::vector<std::int64_t> rows{};    ///< By member.
  std::vector<std::int64_t> shape{4};  ///< Of a row: channels first.
  double ratio{};                      ///< Mean over standard deviation.
  bool affine{true};
  bool running{true};
  std::optional<double> momentum{0.1};
  at::ScalarType dtype{at::kDouble};

  [[nodiscard]] std::string name() const;
};

/// Values in [-1, 1] without a pattern, the same everywhere.
at::Tensor wave(at::IntArrayRef shape, double phase);

/// One member's input, and its own weight and bias: the reference has a copy of them per member, so
/// that local gradients can be compared one by one.
struct Leaves {
  at::Tensor input{}, weight{}, bias{};
  [[nodiscard]] Tensors list() const;
};
Leaves leaves_of(const Setting& setting, std::size_t member);
parallel::BatchNormState state_of(const Setting& setting, const Leaves& leaves);
Tensors running_of(const parallel::BatchNormState& state);

/// A loss of a member's output: rows weigh differently, and member 1's not at all.
at::Tensor loss_of(const at::Tensor& output, std::size_t member);
/// A critic that is not linear, else batch normalisation would make its input's gradient zero.
at::Tensor critic(const at::Tensor& output);
/// WGAN-GP: the norm of each row's gradient is to be 1.
at::Tensor penalty_of(const at::Tensor& gradient);

Tensors gradients(const at::Tensor& of, const Tensors& by, bool create_graph = false);

/// What is compared, of one member.
struct Result {
  at::Tensor output{};
  Tensors first{};   ///< Gradients of the losses by input, weight and bias.
  Tensors second{};  ///< Of the gradient penalty.
  Tensors third{};   ///< Of the sum of squares of the second ones.
  Tensors running{};
};

/// The results of members whose outputs hang in one graph.
std::vector<Result> results_of(const std::vector<Leaves>& members, const Tensors& outputs,
                               const std::vector<Tensors>& running);

/// By at::batch_norm, which has two derivatives, and for the third by its definition.
std::vector<Result> expected_results(const Setting& setting);

/// The distance as a share of the largest expected value, or of one.
double distance(const at::Tensor& actual, const at::Tensor& expected);
/// What is further away than `tolerance`; "" if nothing is.
std::string too_far(const Result& actual, const Result& expected, double tolerance);

}  // namespace lockstep::test
