// The conversion of a torch::nn model: what is replaced, what is shared, and what is refused.

#include "fixtures/implementations/sync_batch_norm_module.h"

#include <gtest/gtest.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

#include "tests/torch/ranks.h"
#include "tests/torch/sync_batch_norm_cases.h"

namespace lockstep::test {
namespace {

using at::Tensor;
using parallel::SyncBatchNorm;

struct Block : torch::nn::Module {
  torch::nn::Sequential inner = register_module(
      "inner", torch::nn::Sequential(torch::nn::Linear(3, 4), torch::nn::BatchNorm1d(4)));
  Tensor forward(const Tensor& input) { return inner->forward(input); }
};

torch::nn::Sequential net_of_rank0() {
  torch::nn::Sequential net(Block(),
                            torch::nn::BatchNorm1d(torch::nn::BatchNormOptions(4).affine(false)));
  double phase = 0;
  for (Tensor& parameter : net->parameters())
    parameter.data().copy_(wave(parameter.sizes(), phase += 0.7));
  net->to(at::kDouble);
  return net;
}

TEST(SyncBatchNormModule, AConvertedModelSharesItsTensorsAndSeesAllRows) {
  run_ranks(2, [](RankContext& context) -> std::string {
    torch::nn::Sequential net = net_of_rank0(), whole = net_of_rank0();
    net->ptr<Block>(0)->inner->ptr(1)->as<torch::nn::BatchNorm1d>()->weight.set_requires_grad(
        false);
    const auto before = net->named_parameters();
    const auto buffers = net->named_buffers();
    const auto sync = std::make_shared<SyncBatchNorm>(parallel::group_exchange(context.group));
    convert_sync_batch_norm(*net, sync);
    require(net->named_parameters().keys() == before.keys(), "the same names");
    for (const auto& item : net->named_parameters()) {
      require(item.value().is_same(before[item.key()]), item.key() + " itself");
      require(item.value().requires_grad() == (item.key() != "0.inner.1.weight"),
              item.key() + " frozen or not, as before");
    }
    const Tensor all = wave({5, 3}, 0.2),
                 output =
                     net->forward(context.rank == 0 ? all.narrow(0, 0, 2) : all.narrow(0, 2, 3));
    const Tensor expected = whole->forward(all);
    require(distance(output, context.rank == 0 ? expected.narrow(0, 0, 2)
                                               : expected.narrow(0, 2, 3)) < 1e-12,
            "the rows of the whole batch's output");
    for (const auto& item : net->named_buffers()) {
      require(item.value().is_same(buffers[item.key()]), item.key() + " itself");
      require(distance(item.value(), whole->named_buffers()[item.key()]) < 1e-12, item.key());
    }
    net->eval();
    whole->eval();
    require(distance(net->forward(all), whole->forward(all)) < 1e-12, "evaluation");
    return "";
  });
}

TEST(SyncBatchNormModule, IsMadeFromOptionsToo) {
  parallel::ReplicaExchange alone(1);
  const auto sync = std::make_shared<SyncBatchNorm>(alone.member(0));
  parallel::SyncBatchNormModule module(torch::nn::BatchNormOptions(3).momentum(0.5), sync);
  torch::nn::BatchNorm1d expected(torch::nn::BatchNormOptions(3).momentum(0.5));
  const Tensor input = wave({6, 3}, 0.3).to(at::kFloat);
  EXPECT_LT(distance(module->forward(input), expected->forward(input)), 1e-6);
  EXPECT_LT(distance(module->running_var, expected->running_var), 1e-6);
}

// A converted evaluation model stays one.
TEST(SyncBatchNormModule, KeepsWhetherALayerIsTraining) {
  torch::nn::Sequential net = net_of_rank0();
  net->eval();
  parallel::ReplicaExchange alone(1);
  convert_sync_batch_norm(*net, std::make_shared<SyncBatchNorm>(alone.member(0)));
  EXPECT_FALSE(net->ptr(1)->is_training());
}

struct Holder : torch::nn::Module {
  torch::nn::BatchNorm2d norm = register_module("norm", torch::nn::BatchNorm2d(2));
  Tensor forward(const Tensor& input) { return norm->forward(input); }
};

TEST(SyncBatchNormModule, ALayerThatOnlyItsOwnerReachesIsRefusedByNameAndNothingChanges) {
  torch::nn::Sequential net(torch::nn::BatchNorm2d(2), Holder());
  parallel::ReplicaExchange alone(1);
  const auto sync = std::make_shared<SyncBatchNorm>(alone.member(0));
  try {
    convert_sync_batch_norm(*net, sync);
    FAIL();
  } catch (const c10::Error& error) {
    EXPECT_NE(error.msg().find("'1.norm'"), std::string::npos) << error.msg();
  }
  EXPECT_NE(net->ptr(0)->as<torch::nn::BatchNorm2d>(), nullptr);
}

}  // namespace
}  // namespace lockstep::test
