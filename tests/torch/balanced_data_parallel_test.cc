// Balanced data parallel on CPU replicas: where outputs and losses are, how losses are weighed, and
// what memory each replica holds.

#include "fixtures/implementations/balanced_data_parallel.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cstdio>

#include "fixtures/implementations/parallel_apply.h"
#include "fixtures/rank_host/replica_memory.h"
#include "tests/torch/finite_differences.h"
#include "tests/torch/replica_modules.h"

namespace lockstep::test {
namespace {

using at::Tensor;
using c10::IValue;
using parallel::Arguments;
using parallel::DataParallelCriterion;
using parallel::DataParallelModel;
using parallel::LossWeighting;
using parallel::ReplicaPlace;

using State = std::shared_ptr<FunctionModule>;

Tensor weighed_rows(const Inputs& p, Inputs& /*buffers*/, const Tensor& x, const ReplicaPlace&) {
  return at::tanh(x * p[0]);
}

State row_state() {
  return std::make_shared<FunctionModule>(FunctionModule{.parameters = {leaf(values({3}))}});
}

Tensor mean_square(const IValue& output, const Arguments& target) {
  return (output.toTensor() - target.front().toTensor()).square().mean();
}

// The loss itself is linear in what it is given, so that its gradient shows each sample's weight.
Tensor mean_of(const IValue& output, const Arguments& /*target*/) {
  return output.toTensor().mean();
}

Tensor identity(const Inputs&, Inputs&, const Tensor& x, const ReplicaPlace&) { return x * 1; }

std::vector<double> sample_weights(std::int64_t rows, std::size_t devices,
                                   LossWeighting weighting) {
  DataParallelModel model(module_of(std::make_shared<FunctionModule>(), &identity), cpus(devices));
  DataParallelCriterion criterion(&mean_of, cpus(devices), weighting);
  const Tensor input = leaf(values({rows}));
  criterion.forward(model.replica_outputs({input}), Arguments{values({rows})}).backward();
  const Tensor gradient = input.grad();
  return {gradient.data_ptr<double>(), gradient.data_ptr<double>() + rows};
}

void expect_near(const std::vector<double>& actual, const std::vector<double>& expected) {
  ASSERT_EQ(actual.size(), expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i)
    EXPECT_NEAR(actual[i], expected[i], 1e-15) << "sample " << i;
}

// The published mean of replica means gives 3 and 2 of 5 samples 1/6 and 1/4 each, not 1/5.
TEST(BalancedDataParallel, WeightsOfSamplesInUnequalParts) {
  expect_near(sample_weights(5, 2, LossWeighting::kReplicas),
              {1.0 / 6, 1.0 / 6, 1.0 / 6, 1.0 / 4, 1.0 / 4});
  expect_near(sample_weights(5, 2, LossWeighting::kSamples), std::vector<double>(5, 1.0 / 5));
  expect_near(sample_weights(4, 2, LossWeighting::kReplicas), std::vector<double>(4, 1.0 / 4));
  // Five rows on four devices: two, two and one.
  expect_near(sample_weights(5, 4, LossWeighting::kReplicas),
              {1.0 / 6, 1.0 / 6, 1.0 / 6, 1.0 / 6, 1.0 / 3});
}

TEST(BalancedDataParallel, OutputsStayWithTheirReplicas) {
  const State state = row_state();
  DataParallelModel model(module_of(state, &weighed_rows), cpus(4));
  const Tensor input = values({5, 3});
  const auto outputs = model.replica_outputs({input});
  ASSERT_EQ(outputs.size(), 3U);
  EXPECT_EQ(outputs[0].toTensor().size(0), 2);
  EXPECT_EQ(outputs[2].toTensor().size(0), 1);
  // For evaluation they are gathered.
  EXPECT_TRUE(at::allclose(model.forward(input), at::tanh(input * state->parameters[0])));
}

struct Computed {
  Tensor loss{}, gradient{};
};

Computed train(std::int64_t rows, std::size_t devices, LossWeighting weighting, bool scattered) {
  const State state = row_state();
  DataParallelModel model(module_of(state, &weighed_rows), cpus(devices));
  DataParallelCriterion criterion(&mean_square, cpus(devices), weighting);
  const Tensor input = values({rows, 3}, 1);
  const Tensor target = values({rows, 3}, 2);
  const auto outputs = scattered ? model.replica_outputs(parallel::scatter({input}, cpus(devices)))
                                 : model.replica_outputs(Arguments{input});
  const Tensor loss = scattered
                          ? criterion.forward(outputs, parallel::scatter({target}, cpus(devices)))
                          : criterion.forward(outputs, Arguments{target});
  loss.backward();
  return {loss.detach(), state->parameters[0].grad()};
}

// The checker's formulas: loss = (1/K) sum of part means, gradient = (1/K) sum of their gradients.
Computed expected(std::int64_t rows, std::size_t devices, LossWeighting weighting) {
  const State state = row_state();
  const auto inputs = at::chunk(values({rows, 3}, 1), static_cast<std::int64_t>(devices));
  const auto targets = at::chunk(values({rows, 3}, 2), static_cast<std::int64_t>(devices));
  Tensor loss = at::zeros({}, at::kDouble);
  for (std::size_t k = 0; k < inputs.size(); ++k) {
    const double weight = weighting == LossWeighting::kReplicas
                              ? 1.0 / static_cast<double>(inputs.size())
                              : static_cast<double>(inputs[k].size(0)) / static_cast<double>(rows);
    loss =
        loss + weight * (at::tanh(inputs[k] * state->parameters[0]) - targets[k]).square().mean();
  }
  loss.backward();
  return {loss.detach(), state->parameters[0].grad()};
}

TEST(BalancedDataParallel, LossAndGradientAreAsDeclared) {
  for (const auto weighting : {LossWeighting::kReplicas, LossWeighting::kSamples}) {
    for (const std::int64_t rows : {5, 6, 1}) {
      for (const std::size_t devices : {1U, 2U, 3U, 4U}) {
        for (const bool scattered : {false, true}) {
          const Computed right = expected(rows, devices, weighting);
          const Computed actual = train(rows, devices, weighting, scattered);
          EXPECT_TRUE(at::allclose(actual.loss, right.loss, 1e-13, 0));
          EXPECT_TRUE(at::allclose(actual.gradient, right.gradient, 1e-12, 1e-14));
        }
      }
    }
  }
}

// A published version evaluates its criterion without a target on a single device.
TEST(BalancedDataParallel, ASingleDeviceKeepsItsTarget) {
  DataParallelCriterion criterion(
      [](const IValue& output, const Arguments& target) {
        EXPECT_EQ(target.size(), 1U);
        return mean_square(output, target);
      },
      cpus(1));
  const Tensor output = values({4, 3});
  const Tensor loss = criterion.forward(std::vector<IValue>{output}, Arguments{values({4, 3}, 1)});
  EXPECT_TRUE(at::allclose(loss, (output - values({4, 3}, 1)).square().mean()));
}

TEST(BalancedDataParallel, EvaluationWithoutReplicas) {
  const DataParallelCriterion criterion(&mean_square, cpus(4));
  const Tensor output = values({5, 3});
  const Tensor loss = criterion.forward(IValue(output), Arguments{values({5, 3}, 1)});
  EXPECT_TRUE(at::allclose(loss, (output - values({5, 3}, 1)).square().mean()));
}

TEST(BalancedDataParallel, OutputsAndTargetsMustMatch) {
  DataParallelCriterion criterion(&mean_square, cpus(4));
  const std::vector<IValue> outputs{values({2, 3}), values({2, 3})};
  try {
    criterion.forward(outputs, Arguments{values({5, 3})});
    FAIL() << "no error";
  } catch (const c10::Error& error) {
    EXPECT_NE(error.msg().find("2 outputs, and the target has 3 parts"), std::string::npos)
        << error.msg();
  }
  try {
    criterion.forward(outputs,
                      std::vector<Arguments>{Arguments{values({2, 3})}, Arguments{values({2, 5})}});
    FAIL() << "no error";
  } catch (const parallel::ReplicaError& error) {
    EXPECT_EQ(error.replica(), 1U);
  }
}

TEST(BalancedDataParallel, IsDifferentiableTwice) {
  const Differentiable function = [](const Inputs& x) -> Inputs {
    const auto state = std::make_shared<FunctionModule>(FunctionModule{.parameters = {x[0]}});
    DataParallelModel model(module_of(state, &weighed_rows), cpus(2));
    DataParallelCriterion criterion(&mean_square, cpus(2));
    return {criterion.forward(model.replica_outputs({x[1]}), Arguments{values({5, 3}, 2)})};
  };
  expect_gradient(function, {values({3}), values({5, 3}, 1)});
  expect_second_gradient(function, {values({3}), values({5, 3}, 1)});
}

// --- Memory
// ---------------------------------------------------------------------------------------------------

constexpr std::int64_t kClasses = 24;

// Segmentation in small: three channels in, one map per class out, at full size.
Tensor segmentation(const Inputs& p, Inputs&, const Tensor& x, const ReplicaPlace&) {
  return at::conv2d(at::relu(at::conv2d(x, p[0])), p[1]);
}

State segmentation_state() {
  return std::make_shared<FunctionModule>(FunctionModule{
      .parameters = {leaf(values({4, 3, 1, 1})), leaf(values({kClasses, 4, 1, 1}))}});
}

Tensor pixel_loss(const IValue& output, const Arguments& target) {
  return at::cross_entropy_loss(output.toTensor(), target.front().toTensor());
}

struct Batch {
  Tensor x = values({8, 3, 16, 16});
  Tensor y = at::arange(8 * 16 * 16, at::kLong).remainder(kClasses).reshape({8, 16, 16});
};

std::vector<std::int64_t> peaks_of(bool balanced) {
  const Batch batch;
  const auto devices = cpus(4);
  DataParallelModel model(module_of(segmentation_state(), &segmentation), devices);
  DataParallelCriterion criterion(&pixel_loss, devices);
  const host::ReplicaMemory memory(devices);
  const Tensor loss = balanced
                          ? criterion.forward(model.replica_outputs({batch.x}), Arguments{batch.y})
                          : pixel_loss(model.forward(batch.x), {batch.y});
  loss.backward();
  return memory.peaks();
}

// The first replica's peak over the largest of the others'.
double excess(const std::vector<std::int64_t>& peaks) {
  return static_cast<double>(peaks.front()) /
         static_cast<double>(*std::max_element(peaks.begin() + 1, peaks.end()));
}

TEST(ReplicaMemory, OutputsThatStayBalanceTheMemory) {
  const auto plain = peaks_of(false);
  const auto balanced = peaks_of(true);
  for (std::size_t i = 0; i < plain.size(); ++i)
    std::printf("replica %zu: data parallel %lld bytes, balanced %lld bytes\n", i,
                static_cast<long long>(plain[i]), static_cast<long long>(balanced[i]));
  // One output of the whole batch, in float64; a part is a quarter of it.
  const std::int64_t output_bytes = 8 * kClasses * 16 * 16 * 8;
  EXPECT_GT(plain.front(), 2 * output_bytes) << "the gathered output and its gradient";
  EXPECT_GT(excess(plain), 2);
  EXPECT_LT(excess(balanced), 1.1);
  EXPECT_GT(balanced.back(), output_bytes / 4) << "a replica's own output was counted";
}

TEST(ReplicaMemory, CountsWhereItIsAllocated) {
  const auto devices = cpus(3);
  const host::ReplicaMemory memory(devices);
  std::vector<Tensor> kept(3);
  parallel::parallel_apply(devices, [&](std::size_t i) {
    kept[i] = at::empty({static_cast<std::int64_t>(1000 * (i + 1))}, at::kByte);
    at::empty({50}, at::kByte);  // Released at once.
    at::empty({50}, at::kByte);
  });
  kept[2] = Tensor();
  const auto peaks = memory.peaks();
  EXPECT_EQ(peaks, (std::vector<std::int64_t>{1050, 2050, 3050}));
}

}  // namespace
}  // namespace lockstep::test
