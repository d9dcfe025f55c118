#include "tests/torch/sync_batch_norm_cases.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <functional>

namespace lockstep::test {

using at::Tensor;
using parallel::BatchNormState;

std::string Setting::name() const {
  std::string text = "rows";
  for (const auto count : rows)
    text += " " + std::to_string(count);
  return text + ", " + std::to_string(shape.size() + 1) + " dimensions" +
         (affine ? "" : ", not affine") + (running ? "" : ", no running values") +
         (momentum ? "" : ", no momentum") + ", mean " + std::to_string(ratio);
}

Tensor wave(at::IntArrayRef shape, double phase) {
  return at::sin(at::arange(c10::multiply_integers(shape), at::kDouble).square() * 0.37 + phase)
      .reshape(shape);
}

Tensors Leaves::list() const {
  return weight.defined() ? Tensors{input, weight, bias} : Tensors{input};
}

Leaves leaves_of(const Setting& setting, std::size_t member) {
  std::vector<std::int64_t> shape = setting.shape;
  shape.insert(shape.begin(), setting.rows[member]);
  const double phase = static_cast<double>(member) * 1.3;
  Leaves leaves;
  leaves.input = (wave(shape, phase) * (1.0 + 0.2 * phase) + setting.ratio + 0.3 * phase)
                     .to(setting.dtype)
                     .set_requires_grad(true);
  if (setting.affine) {
    leaves.weight = (1 + 0.5 * wave({setting.shape[0]}, 0.2)).set_requires_grad(true);
    leaves.bias = wave({setting.shape[0]}, 0.8).set_requires_grad(true);
  }
  return leaves;
}

BatchNormState state_of(const Setting& setting, const Leaves& leaves) {
  BatchNormState state{.weight = leaves.weight, .bias = leaves.bias, .momentum = setting.momentum};
  if (setting.running) {
    state.running_mean = wave({setting.shape[0]}, 0.1);
    state.running_var = 1.5 + wave({setting.shape[0]}, 0.4);
    state.num_batches_tracked = at::full({}, 2, at::kLong);
  }
  return state;
}

Tensors running_of(const BatchNormState& state) {
  if (!state.running_mean.defined())
    return {};
  return {state.running_mean, state.running_var, state.num_batches_tracked};
}

Tensor loss_of(const Tensor& output, std::size_t member) {
  const Tensor rows =
      (output * wave(output.sizes(), 0.3)).square() + output * wave(output.sizes(), 1.3);
  return rows.sum() * (member == 1 ? 0.0 : 1.0 + 0.1 * static_cast<double>(member));
}

Tensor critic(const Tensor& output) { return (at::tanh(output) * wave(output.sizes(), 0.7)).sum(); }

Tensor penalty_of(const Tensor& gradient) {
  if (gradient.numel() == 0)
    return gradient.sum();
  return ((gradient.flatten(1).square().sum(1) + 1e-12).sqrt() - 1).square().sum();
}

Tensors gradients(const Tensor& of, const Tensors& by, bool create_graph) {
  return torch::autograd::grad({of}, by, {}, /*retain_graph=*/true, create_graph,
                               /*allow_unused=*/true);
}

std::vector<Result> results_of(const std::vector<Leaves>& members, const Tensors& outputs,
                               const std::vector<Tensors>& running) {
  Tensors inputs, leaves;
  Tensor loss = at::zeros({}, at::kDouble), score = loss, penalty = loss, squares = loss;
  for (std::size_t i = 0; i < members.size(); ++i) {
    inputs.push_back(members[i].input);
    for (const Tensor& leaf : members[i].list())
      leaves.push_back(leaf);
    loss = loss + loss_of(outputs[i], i);
    score = score + critic(outputs[i]);
  }
  for (const Tensor& gradient : gradients(score, inputs, true))
    penalty = penalty + penalty_of(gradient);
  const Tensors first = gradients(loss, leaves), second = gradients(penalty, leaves, true);
  for (const Tensor& gradient : second)
    squares = gradient.defined() ? squares + gradient.square().sum() : squares;
  Tensors third(leaves.size());
  try {
    third = gradients(squares, leaves);
  } catch (const c10::Error&) {  // at::batch_norm has none.
  }
  std::vector<Result> results(members.size());
  for (std::size_t i = 0; i < leaves.size(); ++i) {
    Result& result = results[i / (leaves.size() / members.size())];
    result.first.push_back(first[i]);
    result.second.push_back(second[i]);
    result.third.push_back(third[i]);
  }
  for (std::size_t i = 0; i < members.size(); ++i) {
    results[i].output = outputs[i].detach();
    results[i].running = running[i];
  }
  return results;
}

namespace {

using Normalise = std::function<Tensor(const Tensor& all, const BatchNormState& state)>;

std::vector<Result> results_by(const Setting& setting, const Normalise& normalise) {
  std::vector<Leaves> members;
  Tensors inputs;
  for (std::size_t i = 0; i < setting.rows.size(); ++i) {
    members.push_back(leaves_of(setting, i));
    inputs.push_back(members.back().input);
  }
  const BatchNormState state = state_of(setting, members[0]);
  Tensors outputs = at::split_with_sizes(normalise(at::cat(inputs), state), setting.rows);
  std::vector<std::int64_t> channels(setting.shape.size() + 1, 1);
  channels[1] = setting.shape[0];
  for (std::size_t i = 0; i < outputs.size() && setting.affine; ++i)
    outputs[i] =
        outputs[i] * members[i].weight.reshape(channels) + members[i].bias.reshape(channels);
  return results_of(members, outputs, std::vector<Tensors>(members.size(), running_of(state)));
}

Tensor by_aten(const Tensor& all, const BatchNormState& state) {
  double momentum = state.momentum.value_or(0);
  if (state.running_mean.defined()) {
    state.num_batches_tracked.add_(1);
    momentum = state.momentum.value_or(1.0 / state.num_batches_tracked.item<double>());
  }
  return at::batch_norm(all, {}, {}, state.running_mean, state.running_var, true, momentum,
                        state.eps, false);
}

Tensor by_definition(const Tensor& all, const BatchNormState& state) {
  std::vector<std::int64_t> dimensions{0};
  for (std::int64_t d = 2; d < all.dim(); ++d)
    dimensions.push_back(d);
  const Tensor centred = all - all.mean(dimensions, /*keepdim=*/true);
  return centred / (centred.square().mean(dimensions, /*keepdim=*/true) + state.eps).sqrt();
}

}  // namespace

std::vector<Result> expected_results(const Setting& setting) {
  std::vector<Result> results = results_by(setting, by_aten);
  const std::vector<Result> defined = results_by(setting, by_definition);
  for (std::size_t i = 0; i < results.size(); ++i)
    results[i].third = defined[i].third;
  return results;
}

double distance(const Tensor& actual, const Tensor& expected) {
  if (!expected.defined() || expected.numel() == 0)
    return 0;
  const double largest = expected.to(at::kDouble).abs().max().item<double>();
  if (!actual.defined())
    return largest;
  const Tensor apart = (actual.to(at::kDouble) - expected.to(at::kDouble)).abs();
  return apart.max().item<double>() / std::max(largest, 1.0);
}

std::string too_far(const Result& actual, const Result& expected, double tolerance) {
  std::string text;
  const auto compare = [&](const std::string& what, const Tensors& a, const Tensors& b) {
    for (std::size_t i = 0; i < b.size(); ++i) {
      const double apart = distance(a.at(i), b[i]);
      if (!(apart <= tolerance))
        text += " " + what + std::to_string(i) + " by " + std::to_string(apart / tolerance) +
                " tolerances";
    }
  };
  compare("output", {actual.output}, {expected.output});
  compare("running", actual.running, expected.running);
  compare("first", actual.first, expected.first);
  compare("second", actual.second, expected.second);
  compare("third", actual.third, expected.third);
  return text;
}

}  // namespace lockstep::test
