// The facts in PyTorch's own tests of SyncBatchNorm, which need GPUs there:
// torch/testing/_internal/ distributed/distributed_test.py and test/distributed/test_c10d_nccl.py.

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include "fixtures/implementations/ddp.h"
#include "fixtures/implementations/sync_batch_norm.h"
#include "tests/torch/ranks.h"
#include "tests/torch/sync_batch_norm_cases.h"

namespace lockstep::test {
namespace {

using at::Tensor;
using parallel::BatchNormState;
using parallel::SyncBatchNorm;

// torch.testing.assert_close in float32.
bool close(const Tensor& actual, const Tensor& expected) {
  return at::allclose(actual, expected, 1.3e-6, 1e-5);
}

// distributed_test.py, test_DistributedDataParallel_SyncBatchNorm_Diff_Input_Sizes_Running_Value.
TEST(SyncBatchNormAsInPyTorch, DiffInputSizesRunningValue) {
  run_ranks(3, [](RankContext& context) -> std::string {
    const auto sync = std::make_shared<SyncBatchNorm>(parallel::group_exchange(context.group));
    const auto input_of_rank = [](int i) {
      const auto length = static_cast<std::int64_t>(std::pow(10, i + 1));
      return at::cat({at::ones({2, 1, length}) * std::pow(0.1, i - 1),
                      at::ones({2, 1, length}) * std::pow(0.3, i - 1)},
                     1);
    };
    const BatchNormState state{.weight = at::ones({2}).set_requires_grad(true),
                               .bias = at::zeros({2}).set_requires_grad(true),
                               .running_mean = at::zeros({2}),
                               .running_var = at::ones({2}),
                               .num_batches_tracked = at::zeros({}, at::kLong),
                               .momentum = 0.99};
    for (int i = 0; i < 100; ++i)
      sync->forward(input_of_rank(context.rank), state).mean().backward();
    Tensors all;
    for (int i = 0; i < context.world; ++i)
      all.push_back(input_of_rank(i).permute({1, 0, 2}).reshape({2, -1}));
    require(close(state.running_mean, at::cat(all, 1).mean(1)), "the mean of all values");
    require(close(state.running_var, at::cat(all, 1).var(1)),
            "the unbiased variance of all values");
    return "";
  });
}

// A linear layer and a batch normalisation, with what stock SGD needs.
struct Net {
  Tensor linear = wave({2, 2}, 0.4).to(at::kFloat).set_requires_grad(true);
  BatchNormState state{.running_mean = at::zeros({2}),
                       .running_var = at::ones({2}),
                       .num_batches_tracked = at::zeros({}, at::kLong)};
  Tensors parameters{linear};

  explicit Net(bool affine) {
    if (!affine)
      return;
    state.weight = at::ones({2}).set_requires_grad(true);
    state.bias = at::zeros({2}).set_requires_grad(true);
    parameters.insert(parameters.end(), {state.weight, state.bias});
  }
  void step() const {
    const at::NoGradGuard no_grad;
    for (const Tensor& parameter : parameters) {
      parameter.sub_(parameter.grad());
      parameter.mutable_grad().reset();
    }
  }
};

// Under Ddp against the same on the whole batch in one process, 5 iterations.
std::string train(RankContext& context, const std::vector<std::int64_t>& rows, bool affine) {
  const auto sync = std::make_shared<SyncBatchNorm>(parallel::group_exchange(context.group));
  const auto rank = static_cast<std::size_t>(context.rank);
  std::int64_t total = 0, offset = 0;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    offset += i < rank ? rows[i] : 0;
    total += rows[i];
  }
  const Tensor input = wave({total, 2}, 0.1).to(at::kFloat);
  const Tensor target = wave({total, 2}, 0.2).to(at::kFloat);
  const Net alone(affine), together(affine);
  parallel::Module module;
  for (std::size_t i = 0; i < together.parameters.size(); ++i)
    module.parameters.push_back({std::to_string(i), together.parameters[i]});
  module.buffers = [] { return std::vector<parallel::NamedTensor>{}; };
  module.forward = [&](const Tensor& own) {
    return sync->forward(at::linear(own, together.linear), together.state);
  };
  const auto ddp = parallel::Ddp::wrap(std::move(module), context.group);
  // The mean over ranks is to be the mean over the whole batch.
  const double share = static_cast<double>(rows[rank] * context.world) / static_cast<double>(total);
  for (int iteration = 0; iteration < 5; ++iteration) {
    const Tensor expected = at::batch_norm(
        at::linear(input, alone.linear), alone.state.weight, alone.state.bias,
        alone.state.running_mean, alone.state.running_var, true, 0.1, alone.state.eps, false);
    at::mse_loss(expected, target).backward();
    const Tensor output = ddp->forward(input.narrow(0, offset, rows[rank]));
    (at::mse_loss(output, target.narrow(0, offset, rows[rank])) * share).backward();
    alone.step();
    together.step();
    for (std::size_t i = 0; i < alone.parameters.size(); ++i)
      require(close(together.parameters[i], alone.parameters[i]),
              "parameter " + std::to_string(i) + " after iteration " + std::to_string(iteration));
  }
  require(close(together.state.running_var, alone.state.running_var), "the running variance");
  return "";
}

void require_trains_as_one_process(const std::vector<std::int64_t>& rows, bool affine = true) {
  run_ranks(static_cast<int>(rows.size()),
            [&](RankContext& context) { return train(context, rows, affine); });
}

// ..._SyncBatchNorm_2D_Input and ..._SyncBatchNorm: two rows per rank.
TEST(SyncBatchNormAsInPyTorch, TwoRowsPerRank) {
  require_trains_as_one_process({2, 2});
  require_trains_as_one_process({2, 2, 2});
}

// ..._SyncBatchNorm_No_Affine.
TEST(SyncBatchNormAsInPyTorch, NoAffine) { require_trains_as_one_process({2, 2}, false); }

// ..._SyncBatchNorm_Single_Input_Per_Process.
TEST(SyncBatchNormAsInPyTorch, SingleInputPerProcess) { require_trains_as_one_process({1, 1}); }

// ..._SyncBatchNorm_Diff_Input_Sizes_gradient: rank + 2 rows.
TEST(SyncBatchNormAsInPyTorch, DiffInputSizesGradient) { require_trains_as_one_process({2, 3, 4}); }

// test_c10d_nccl.py, test_sync_batch_norm_only_empty_input: nothing is NaN.
TEST(SyncBatchNormAsInPyTorch, EmptyInput) {
  run_ranks(2, [](RankContext& context) -> std::string {
    const auto sync = std::make_shared<SyncBatchNorm>(parallel::group_exchange(context.group));
    for (const std::int64_t rows : {context.rank == 0 ? 0 : 1, 0}) {
      for (const bool requires_grad : {true, false}) {
        const Tensor input = at::zeros({rows, 2, 11, 13}).set_requires_grad(requires_grad);
        const BatchNormState state{.weight = at::ones({2}).set_requires_grad(true),
                                   .bias = at::zeros({2}).set_requires_grad(true),
                                   .running_mean = at::zeros({2}),
                                   .running_var = at::ones({2}),
                                   .num_batches_tracked = at::zeros({}, at::kLong)};
        const Tensor output = sync->forward(input, state);
        output.sum().backward();
        for (const Tensor& tensor : {output, state.weight.grad(), state.bias.grad(),
                                     state.running_mean, state.running_var})
          require(!tensor.isnan().any().item<bool>(), "no NaN");
      }
    }
    return "";
  });
}

}  // namespace
}  // namespace lockstep::test
