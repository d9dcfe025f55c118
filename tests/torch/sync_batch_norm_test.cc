// SyncBatchNorm against at::batch_norm on the concatenated batch in one process, in float64:
// values, running statistics and derivatives of three orders, for ranks and for replicas in
// threads; how many collectives it needs; what it refuses.

#include "fixtures/implementations/sync_batch_norm.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <map>
#include <thread>

#include "tests/torch/ranks.h"
#include "tests/torch/sync_batch_norm_cases.h"

namespace lockstep::test {
namespace {

using at::Tensor;
using parallel::BatchNormState;
using parallel::SyncBatchNorm;

// Of one member that runs its own backward.
Result result_of(const Setting& setting, SyncBatchNorm& sync, std::size_t member) {
  const Leaves leaves = leaves_of(setting, member);
  const BatchNormState state = state_of(setting, leaves);
  const Tensor output = sync.forward(leaves.input, state);
  Result result{.output = output.detach(), .running = running_of(state)};
  result.first = gradients(loss_of(output, member), leaves.list());
  const Tensor penalty =
      penalty_of(gradients(critic(output), {leaves.input}, /*create_graph=*/true)[0]);
  result.second = gradients(penalty, leaves.list(), true);
  Tensor squares = at::zeros({}, at::kDouble);
  for (const Tensor& gradient : result.second)
    squares = gradient.defined() ? squares + gradient.square().sum() : squares;
  result.third = gradients(squares, leaves.list());
  return result;
}

void require_ranks(const std::vector<Setting>& settings, double tolerance = 1e-12) {
  std::map<std::size_t, std::vector<Setting>> by_world;
  for (const Setting& setting : settings)
    by_world[setting.rows.size()].push_back(setting);
  for (const auto& [world, of_world] : by_world) {
    run_ranks(static_cast<int>(world), [&, alike = &of_world](RankContext& context) -> std::string {
      const auto sync = std::make_shared<SyncBatchNorm>(parallel::group_exchange(context.group));
      const auto rank = static_cast<std::size_t>(context.rank);
      for (const Setting& setting : *alike) {
        const Result result = result_of(setting, *sync, rank);
        const std::string text = too_far(result, expected_results(setting)[rank], tolerance);
        require(text.empty(), setting.name() + ":" + text);
      }
      return "";
    });
  }
}

const std::vector<std::vector<std::int64_t>> kCounts{{5, 3},    {1, 4},     {0, 4},
                                                     {3, 5, 7}, {49, 1, 2}, {5, 3, 0, 1}};

std::vector<Setting> settings_of(const Setting& like) {
  std::vector<Setting> settings;
  for (const auto& rows : kCounts) {
    settings.push_back(like);
    settings.back().rows = rows;
  }
  return settings;
}

// The first article that one finds says that one dimension is not supported. It is.
TEST(SyncBatchNorm, OneDimensionWithoutAndWithLength) {
  require_ranks(settings_of({.shape = {4}}));
  require_ranks(settings_of({.shape = {3, 5}}));
}

TEST(SyncBatchNorm, TwoAndThreeDimensions) {
  require_ranks(settings_of({.shape = {3, 2, 4}}));
  require_ranks(settings_of({.shape = {2, 3, 2, 2}}));
}

TEST(SyncBatchNorm, NotAffineNoRunningValuesNoMomentum) {
  require_ranks(settings_of({.shape = {3, 2}, .affine = false}));
  require_ranks(settings_of({.shape = {3, 2}, .running = false}));
  require_ranks(settings_of({.shape = {3, 2}, .momentum = std::nullopt}));
}

TEST(SyncBatchNorm, AMeanFarFromZero) {
  require_ranks(settings_of({.shape = {3, 2}, .ratio = 10}), 1e-10);
  require_ranks(settings_of({.shape = {3, 2}, .ratio = 1000}), 1e-7);
}

// The gradient penalty's gradient along a direction, by central differences: no derivative of ours
// and none of at::batch_norm is needed to know it.
TEST(SyncBatchNorm, SecondDerivativesAreThoseOfFiniteDifferences) {
  run_ranks(3, [](RankContext& context) -> std::string {
    const Setting setting{.rows = {4, 0, 3}, .shape = {2, 3}};
    const auto rank = static_cast<std::size_t>(context.rank);
    const auto sync = std::make_shared<SyncBatchNorm>(parallel::group_exchange(context.group));
    const Leaves leaves = leaves_of(setting, rank);
    const auto penalty = [&](double step) {
      const auto moved = [&](const Tensor& leaf, double phase) {
        return (leaf.detach() + step * wave(leaf.sizes(), phase)).set_requires_grad(true);
      };
      const Leaves at{moved(leaves.input, 0.5), moved(leaves.weight, 0.6), moved(leaves.bias, 0.7)};
      const Tensor output = sync->forward(at.input, state_of(setting, at));
      const Tensor value = penalty_of(gradients(critic(output), {at.input}, true)[0]);
      Tensor slope = at::zeros({}, at::kDouble);
      double phase = 0.5;
      for (const Tensor& gradient : gradients(value, at.list())) {
        slope = slope + (gradient * wave(gradient.sizes(), phase)).sum();
        phase += 0.1;
      }
      return std::pair(parallel::all_reduce_sum(value.detach(), context.group).item<double>(),
                       parallel::all_reduce_sum(slope, context.group).item<double>());
    };
    const double step = 1e-5;
    const double expected = (penalty(step).first - penalty(-step).first) / (2 * step);
    const double slope = penalty(0).second;
    require(std::abs(slope) > 0.1 && std::abs(slope - expected) < 1e-7 * std::abs(slope),
            "the slope " + std::to_string(expected) + ", not " + std::to_string(slope));
    return "";
  });
}

TEST(SyncBatchNorm, OneCollectiveForwardAndOneInBackward) {
  run_ranks(2, [](RankContext& context) -> std::string {
    const Setting setting{.rows = {3, 2}, .shape = {4, 2}};
    const auto sync = std::make_shared<SyncBatchNorm>(parallel::group_exchange(context.group));
    const Leaves leaves = leaves_of(setting, static_cast<std::size_t>(context.rank));
    std::uint64_t before = context.group->getSequenceNumberForGroup();
    const auto require_issued = [&](std::uint64_t count, const std::string& when) {
      const std::uint64_t now = context.group->getSequenceNumberForGroup();
      require(now - before == count, std::to_string(count) + " collectives in " + when + ", not " +
                                         std::to_string(now - before));
      before = now;
    };
    const Tensor output = sync->forward(leaves.input, state_of(setting, leaves));
    require_issued(1, "forward");
    gradients(output.square().sum(), {leaves.input});
    require_issued(1, "backward");
    gradients(output.square().sum(), {leaves.weight});
    require_issued(0, "a backward that does not need the input's gradient");
    const Tensor gradient = gradients(critic(output), {leaves.input}, true)[0];
    require_issued(2, "a backward with create_graph");
    gradients(penalty_of(gradient), leaves.list());
    // Two through that backward, one through the forward: the critic is not linear.
    require_issued(3, "the backward of that");
    BatchNormState state = state_of(setting, leaves);
    state.training = false;
    sync->forward(leaves.input, state).sum().backward();
    require_issued(0, "evaluation");
    return "";
  });
}

TEST(SyncBatchNorm, EvaluationIsThatOfBatchNorm) {
  run_ranks(2, [](RankContext& context) -> std::string {
    const Setting setting{.rows = {3, 0}, .shape = {4, 2}};
    const auto sync = std::make_shared<SyncBatchNorm>(parallel::group_exchange(context.group));
    const Leaves leaves = leaves_of(setting, static_cast<std::size_t>(context.rank));
    BatchNormState state = state_of(setting, leaves);
    state.training = false;
    const Tensor expected =
        at::batch_norm(leaves.input, leaves.weight, leaves.bias, state.running_mean.clone(),
                       state.running_var.clone(), false, 0, state.eps, false);
    require(sync->forward(leaves.input, state).equal(expected), "what batch_norm says");
    require(state.num_batches_tracked.item<std::int64_t>() == 2, "no batch counted");
    return "";
  });
}

// Statistics of narrow inputs are float32: what is left is the rounding of input and output.
TEST(SyncBatchNorm, NarrowInputsHaveFloat32Statistics) {
  run_ranks(3, [](RankContext& context) -> std::string {
    const auto sync = std::make_shared<SyncBatchNorm>(parallel::group_exchange(context.group));
    const auto rank = static_cast<std::size_t>(context.rank);
    for (const auto dtype : {at::kHalf, at::kBFloat16, at::kFloat}) {
      const Setting narrow{.rows = {50, 0, 31}, .shape = {3, 7}, .dtype = dtype};
      // The reference sees the rounded values, in float64.
      std::vector<Tensor> rounded;
      for (std::size_t i = 0; i < 3; ++i)
        rounded.push_back(
            leaves_of(narrow, i).input.detach().to(at::kDouble).set_requires_grad(true));
      const Leaves leaves = leaves_of(narrow, rank);
      const BatchNormState state = state_of(narrow, leaves);
      const Tensor output = sync->forward(leaves.input, state);
      require(output.scalar_type() == dtype, "an output of the input's type");
      const Tensor gradient =
          gradients((output * wave(output.sizes(), 0.3).to(dtype)).sum(), {leaves.input})[0];
      require(gradient.scalar_type() == dtype, "a gradient of the input's type");

      const BatchNormState wide = state_of(narrow, leaves);
      const Tensor all =
          at::batch_norm(at::cat(rounded), leaves.weight, leaves.bias, wide.running_mean,
                         wide.running_var, true, 0.1, 1e-5, false);
      Tensor loss = at::zeros({}, at::kDouble);
      const Tensors split = at::split_with_sizes(all, narrow.rows);
      for (const Tensor& one : split)
        loss = loss + (one * wave(one.sizes(), 0.3).to(dtype).to(at::kDouble)).sum();
      const double unit = dtype == at::kFloat ? 1e-6 : dtype == at::kHalf ? 1e-3 : 8e-3;
      require(distance(output, split[rank]) < unit, "the output, rounded");
      require(distance(gradient, gradients(loss, rounded)[rank]) < unit, "the gradient, rounded");
      require(distance(state.running_mean, wide.running_mean) < 1e-6, "float32 running mean");
      require(distance(state.running_var, wide.running_var) < 1e-6, "float32 running variance");
    }
    return "";
  });
}

std::string what_is_raised(const std::function<void()>& body) {
  try {
    body();
  } catch (const c10::Error& error) {
    return error.msg();
  }
  return "nothing";
}

TEST(SyncBatchNorm, WhatWouldHangOrMeansNothingIsAnErrorOnAllRanks) {
  const auto said = run_ranks(3, [](RankContext& context) {
    const auto sync = std::make_shared<SyncBatchNorm>(parallel::group_exchange(context.group));
    const bool differs = context.rank == 1;
    const auto forward = [&](const Tensor& input) {
      return what_is_raised([&] { sync->forward(input, {}); });
    };
    return forward(at::ones({2, 3}).set_requires_grad(!differs)) + "\n" +
           forward(at::ones({differs ? 1 : 0, 3})) + "\n" + forward(at::ones({3})) + "\n" +
           what_is_raised([&] {
             sync->forward(at::ones({2, 3}), {.weight = at::ones({2})});
           });
  });
  for (const std::string& text : said) {
    EXPECT_NE(text.find("in their order: yes,no,yes"), std::string::npos) << text;
    EXPECT_NE(text.find("have 1 in all"), std::string::npos) << text;
    EXPECT_NE(text.find("need a floating type and [rows, channels, ...]"), std::string::npos);
    EXPECT_NE(text.find("have 3 channels and a weight"), std::string::npos) << text;
  }
}

// Replicas in threads: one backward, in this thread, through all of them.
TEST(SyncBatchNorm, ReplicasInThreads) {
  for (const Setting& setting : settings_of({.shape = {3, 2}})) {
    const std::size_t replicas = setting.rows.size();
    parallel::ReplicaExchange exchange(static_cast<std::int64_t>(replicas));
    std::vector<Leaves> members(replicas);
    std::vector<BatchNormState> states(replicas);
    Tensors outputs(replicas);
    std::vector<std::thread> threads;
    for (std::size_t i = 0; i < replicas; ++i) {
      threads.emplace_back([&, i] {
        const parallel::ReplicaExchange::Presence presence(exchange, static_cast<std::int64_t>(i));
        members[i] = leaves_of(setting, i);
        states[i] = state_of(setting, members[i]);
        outputs[i] = std::make_shared<SyncBatchNorm>(exchange.member(static_cast<std::int64_t>(i)))
                         ->forward(members[i].input, states[i]);
      });
    }
    for (std::thread& thread : threads)
      thread.join();
    std::vector<Tensors> running;
    for (const BatchNormState& state : states)
      running.push_back(running_of(state));
    const auto results = results_of(members, outputs, running);
    const auto expected = expected_results(setting);
    for (std::size_t i = 0; i < replicas; ++i)
      EXPECT_EQ(too_far(results[i], expected[i], 1e-12), "") << setting.name() << " replica " << i;
  }
}

}  // namespace
}  // namespace lockstep::test
