// DataParallel on CPU replicas against numbers computed without it. Tests named in quotes are
// PyTorch's own (test/distributed/test_data_parallel.py, test/cpp/api/parallel.cpp).

#include "fixtures/implementations/data_parallel.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>
#include <torch/nn/cloneable.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/linear.h>

#include "fixtures/implementations/parallel_apply.h"
#include "fixtures/implementations/statistics_exchange.h"
#include "tests/torch/finite_differences.h"
#include "tests/torch/replica_modules.h"

namespace lockstep::test {
namespace {

using at::Tensor;
using parallel::DataParallel;
using parallel::Module;
using parallel::ReplicaPlace;

using State = std::shared_ptr<FunctionModule>;

Tensor two_layers(const Inputs& p, Inputs& /*buffers*/, const Tensor& x, const ReplicaPlace&) {
  return at::linear(at::tanh(at::linear(x, p[0], p[1])), p[2]);
}

State two_layer_state() {
  return std::make_shared<FunctionModule>(FunctionModule{
      .parameters = {leaf(values({4, 3})), leaf(values({4}, 1)), leaf(values({2, 4}, 2))}});
}

// Parameters of a network whose loss is the sum of the cubed outputs.
Inputs gradients_of(const State& state, const Tensor& output) {
  output.pow(3).sum().backward();
  Inputs gradients;
  for (const Tensor& parameter : state->parameters) {
    gradients.push_back(parameter.grad());
    parameter.mutable_grad() = Tensor();
  }
  return gradients;
}

// "test_data_parallel", "test_data_parallel_small_back", "DataParallelNumericalEquivalence".
TEST(DataParallel, IsTheModuleOnTheWholeBatch) {
  for (const std::int64_t rows : {20, 5, 2, 1}) {
    for (const std::size_t devices : {1U, 2U, 3U, 5U}) {
      const State state = two_layer_state();
      const Module module = module_of(state, &two_layers);
      const Tensor input = values({rows, 3});
      const Tensor alone = module.forward(input);
      const Inputs expected = gradients_of(state, alone);
      DataParallel parallel(module, cpus(devices));
      const Tensor output = parallel.forward(input);
      EXPECT_TRUE(at::allclose(output, alone, 1e-13, 1e-14));
      const Inputs actual = gradients_of(state, output);
      for (std::size_t i = 0; i < expected.size(); ++i)
        EXPECT_TRUE(at::allclose(actual[i], expected[i], 1e-12, 1e-13))
            << "p" << i << ", " << rows << " rows on " << devices;
    }
  }
}

// "test_data_parallel_function_deletion": a penalty on the input's gradient.
TEST(DataParallel, GradientPenaltyOfPyTorchsTest) {
  const auto state = std::make_shared<FunctionModule>(
      FunctionModule{.parameters = {leaf(values({1, 4})), leaf(values({1}, 1))}});
  DataParallel parallel(
      module_of(state, [](const Inputs& p, Inputs&, const Tensor& x,
                          const ReplicaPlace&) { return at::linear(x, p[0], p[1]); }),
      cpus(2));
  const Tensor x = leaf(at::ones({2, 4}, at::kDouble));
  const Tensor output = parallel.forward(x);
  const Tensor gradient =
      torch::autograd::grad({output}, {x}, {at::ones_like(output)}, true, true)[0];
  gradient.mean().backward();
  EXPECT_TRUE(at::equal(state->parameters[0].grad(), at::full({1, 4}, 0.25, at::kDouble)));
  EXPECT_TRUE(at::equal(state->parameters[1].grad(), at::zeros({1}, at::kDouble)));
}

TEST(DataParallel, DerivativesOfInputsAndParametersToTheSecondOrder) {
  const Differentiable function = [](const Inputs& x) -> Inputs {
    const auto state =
        std::make_shared<FunctionModule>(FunctionModule{.parameters = {x[1], x[2], x[3]}});
    DataParallel parallel(module_of(state, &two_layers), cpus(2));
    return {parallel.forward(x[0])};
  };
  const Inputs at{values({5, 3}), values({4, 3}), values({4}, 1), values({2, 4}, 2)};
  expect_gradient(function, at);
  expect_second_gradient(function, at);
}

// Batch normalisation written out: the buffers are the mean of the last batch (changed in place)
// and the number of batches (replaced by another tensor).
Tensor normalised(const Inputs& p, Inputs& buffers, const Tensor& x, const ReplicaPlace&) {
  const Tensor mean = x.mean(0);
  {
    const at::NoGradGuard no_grad;
    buffers[0].copy_(mean);
    buffers[1] = buffers[1] + 1;
  }
  return p[0] * (x - mean);
}

// "test_replicate_buffers", and that replica 0's live on.
TEST(DataParallel, BuffersOfReplicaZeroSurvive) {
  const auto state = std::make_shared<FunctionModule>(
      FunctionModule{.parameters = {leaf(values({3}))},
                     .buffers = {at::zeros({3}, at::kDouble), at::zeros({}, at::kLong)}});
  DataParallel parallel(module_of(state, &normalised), cpus(3));
  const Tensor input = values({7, 3});
  const Tensor mean_object = state->buffers[0];
  const Tensor output = parallel.forward(input);
  EXPECT_TRUE(at::equal(state->buffers[0], input.slice(0, 0, 3).mean(0)));
  EXPECT_TRUE(state->buffers[0].is_same(mean_object));
  EXPECT_EQ(state->buffers[1].item<std::int64_t>(), 1);
  Inputs by_part;
  for (const Tensor& part : at::chunk(input, 3))
    by_part.push_back(state->parameters[0] * (part - part.mean(0)));
  EXPECT_TRUE(at::allclose(output, at::cat(by_part)));  // Statistics are each part's own.
  parallel.forward(input);
  EXPECT_EQ(state->buffers[1].item<std::int64_t>(), 2);
}

// "test_data_parallel_no_grad": grad mode reaches the replicas, and what they raise the caller.
TEST(DataParallel, GradModeReachesTheReplicas) {
  const auto state = two_layer_state();
  DataParallel parallel(module_of(state,
                                  [](const Inputs&, Inputs&, const Tensor& x, const ReplicaPlace&) {
                                    TORCH_CHECK(!at::GradMode::is_enabled(), "gradients are on");
                                    return x;
                                  }),
                        cpus(2));
  try {
    parallel.forward(values({4, 1}));
    FAIL() << "no error";
  } catch (const parallel::ReplicaError& error) {
    EXPECT_EQ(std::string(error.what()).substr(0, 34), "replica 0 on cpu: gradients are on");
  }
  const at::NoGradGuard no_grad;
  EXPECT_TRUE(at::equal(parallel.forward(values({4, 1})), values({4, 1})));
}

// "test_data_parallel_multiple_input": tensors are split, a number goes whole to every replica.
TEST(DataParallel, SeveralArgumentsAndANumber) {
  std::atomic<int> calls = 0;
  const auto call = [&calls](const parallel::Arguments& arguments) -> c10::IValue {
    ++calls;
    EXPECT_EQ(arguments[2].toDouble(), 1.5);
    return arguments[2].toDouble() * (arguments[0].toTensor() * arguments[1].toTensor());
  };
  Module module = module_of(std::make_shared<FunctionModule>(), nullptr);
  module.call = call;
  module.replica = [&](const parallel::ReplicaParts&) {
    Module replica = module_of(std::make_shared<FunctionModule>(), nullptr);
    replica.call = call;
    return replica;
  };
  const Tensor first = leaf(values({5, 5}));
  const Tensor second = values({5, 5}, 1);
  DataParallel parallel(module, cpus(2));
  const Tensor output = parallel.forward({first, second, 1.5}).toTensor();
  EXPECT_EQ(calls, 2);
  EXPECT_TRUE(at::allclose(output, 1.5 * (first * second)));
  output.sum().backward();
  EXPECT_TRUE(at::allclose(first.grad(), 1.5 * second));
  EXPECT_THROW(DataParallel(module_of(two_layer_state(), &two_layers), cpus(2)).forward({1, 2}),
               parallel::ReplicaError);
}

// "test_data_parallel_model_device".
TEST(DataParallel, TheModuleMustBeOnTheFirstDevice) {
  const auto state = two_layer_state();
  state->parameters[1] = at::empty({4}, at::TensorOptions().device(at::kMeta));
  DataParallel parallel(module_of(state, &two_layers), cpus(2));
  try {
    parallel.forward(values({4, 3}));
    FAIL() << "no error";
  } catch (const c10::Error& error) {
    EXPECT_NE(error.msg().find("the first device, cpu, but its parameter p1 is on meta"),
              std::string::npos)
        << error.msg();
  }
}

TEST(DataParallel, TiedAndFrozenParameters) {
  const auto state = std::make_shared<FunctionModule>(
      FunctionModule{.parameters = {leaf(values({3})), values({3}, 1)}});
  state->parameters.push_back(state->parameters[0]);
  const auto compute = [](const Inputs& p, Inputs&, const Tensor& x, const ReplicaPlace&) {
    EXPECT_FALSE(p[1].requires_grad());
    return x * p[0] * p[1] + p[2];
  };
  DataParallel parallel(module_of(state, compute), cpus(3));
  const Tensor input = values({4, 3});
  parallel.forward(input).sum().backward();
  EXPECT_TRUE(at::allclose(state->parameters[0].grad(), (input * state->parameters[1]).sum(0) + 4));
}

TEST(DataParallel, ReplicasAreMadeAnewForEveryForward) {
  const State state = two_layer_state();
  DataParallel parallel(module_of(state, &two_layers), cpus(3));
  const Tensor input = values({6, 3});
  parallel.forward(input);
  {
    const at::NoGradGuard no_grad;
    state->parameters[0].mul_(2);
  }
  EXPECT_TRUE(at::allclose(parallel.forward(input), module_of(state, &two_layers).forward(input),
                           1e-13, 1e-14));
}

TEST(DataParallel, ReplicasMeetInTheirExchange) {
  const auto state = std::make_shared<FunctionModule>();
  DataParallel parallel(
      module_of(state,
                [](const Inputs&, Inputs&, const Tensor& x, const ReplicaPlace& place) {
                  return x - place.exchange->all_reduce_sum(x.sum(0)) / 5;
                }),
      cpus(4));
  const Tensor input = leaf(values({5, 2}));
  EXPECT_TRUE(at::allclose(parallel.forward(input), input - input.mean(0)));
}

// A layer that replicas have in common, as batch normalisation over all of them would be.
struct ListenerImpl : public torch::nn::Cloneable<ListenerImpl>, public parallel::ReplicaListener {
  void reset() override {}
  void replicated(const ReplicaPlace& place) override { place_ = place; }
  Tensor forward(const Tensor& x) {
    return place_.exchange ? place_.exchange->all_reduce_sum(x.sum(0)).expand_as(x)
                           : x.sum(0).expand_as(x);
  }
  ReplicaPlace place_{};
};
TORCH_MODULE(Listener);

struct NetImpl : public torch::nn::Cloneable<NetImpl> {
  NetImpl() { reset(); }
  void reset() override {
    first = register_module("first", torch::nn::Linear(3, 4));
    norm = register_module("norm", torch::nn::BatchNorm1d(4));
    shared = register_module("shared", Listener());
    scale = register_parameter("scale", at::ones({4}));
  }
  Tensor forward(const Tensor& x) { return shared(norm(first(x)) * scale).tanh() + norm(first(x)); }
  torch::nn::Linear first{nullptr};
  torch::nn::BatchNorm1d norm{nullptr};
  Listener shared{nullptr};
  Tensor scale{};
};

// "test_replicate", "test_data_parallel_module", "DataParallel..." of the C++ tests, whose running
// statistics never change.
TEST(DataParallel, ModulesOfTorchNn) {
  const auto net = std::make_shared<NetImpl>();
  net->to(at::kDouble);
  net->scale.set_requires_grad(false);
  const Tensor input = values({7, 3});
  const auto parts = at::chunk(input, 2);
  DataParallel parallel(parallel::module_of(net), cpus(2));
  const Tensor output = parallel.forward(input);
  EXPECT_EQ(net->norm->num_batches_tracked.item<std::int64_t>(), 2);
  output.square().sum().backward();

  const auto alone = std::dynamic_pointer_cast<NetImpl>(net->clone());
  alone->to(at::kDouble);
  const auto normal = [&](const Tensor& part) {
    return at::batch_norm(alone->first(part), alone->norm->weight, alone->norm->bias, Tensor(),
                          Tensor(), true, 0.1, 1e-5, false);
  };
  const Tensor sum = normal(parts[0]).sum(0) + normal(parts[1]).sum(0);
  const Tensor expected = at::cat(
      {sum.expand({4, 4}).tanh() + normal(parts[0]), sum.expand({3, 4}).tanh() + normal(parts[1])});
  EXPECT_TRUE(at::allclose(output, expected, 1e-10, 1e-11));
  expected.square().sum().backward();
  const auto gradients = alone->named_parameters();
  for (const auto& item : net->named_parameters()) {
    if (item.key() == "scale")
      EXPECT_FALSE(item.value().grad().defined());
    else
      EXPECT_TRUE(at::allclose(item.value().grad(), gradients[item.key()].grad(), 1e-8, 1e-10))
          << item.key();
  }
  const Tensor hidden = net->first(parts[0]);
  EXPECT_TRUE(at::allclose(net->norm->running_mean, hidden.mean(0) * 0.19, 1e-6, 1e-8));
}

TEST(DataParallel, WhatCannotBeReplicatedIsRefusedAtOnce) {
  Module module = module_of(two_layer_state(), &two_layers);
  module.replica = nullptr;
  EXPECT_THROW(DataParallel(module, cpus(2)), c10::Error);
  EXPECT_NO_THROW(DataParallel(module, cpus(1)));
  EXPECT_THROW(DataParallel(module, {}), c10::Error);
}

}  // namespace
}  // namespace lockstep::test
