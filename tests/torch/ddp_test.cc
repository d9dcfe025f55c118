// Both implementations of DDP against numbers computed without them: gradients, buffers at entry of
// forward (the table of Python's DistributedDataParallel), accumulation, unused parameters,
// buckets, and forwards before a pending backward.

#include "fixtures/implementations/ddp.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include <memory>

#include "fixtures/implementations/bucketed_ddp.h"
#include "tests/torch/training.h"

namespace lockstep::test {
namespace {

using at::Tensor;
using parallel::BucketedDdp;
using parallel::Ddp;
using parallel::DdpOptions;
using parallel::Module;

template <class D>
struct DdpTest : testing::Test {};

struct Name {
  template <class D>
  static std::string GetName(int) {
    return std::is_same_v<D, Ddp> ? "Ddp" : "BucketedDdp";
  }
};
using Both = testing::Types<Ddp, BucketedDdp>;
TYPED_TEST_SUITE(DdpTest, Both, Name);

template <class D>
std::string train_some(RankContext& context, const std::string& name, const DdpOptions& options) {
  const auto model = model_of_rank(name, context.rank);
  const auto ddp = D::wrap(module_of(model), context.group, options);
  for (int step = 0; step < 3; ++step) {
    clear_gradients(*model);
    mean_loss(*model, ddp->forward(input_of(*model, context.rank, step))).backward();
    require_gradients(*model, expected_gradients(name, context.world, step));
  }
  std::string shape;
  for (const auto& bucket : ddp->buckets())
    shape += std::to_string(bucket.size()) + ":" + bucket.front() + " ";
  return shape;
}

TYPED_TEST(DdpTest, GradientIsTheMeanOfRankMeans) {
  for (const char* name : {"mlp", "conv_bn", "linear_int"})
    run_ranks(3, [name](RankContext& context) { return train_some<TypeParam>(context, name, {}); });
}

TYPED_TEST(DdpTest, BucketsAreRebuiltInTheOrderOfTheFirstBackward) {
  const auto buckets = run_ranks(2, [](RankContext& context) {
    return train_some<TypeParam>(context, "mlp",
                                 {.bucket_cap_bytes = 512, .first_bucket_bytes = 128});
  });
  EXPECT_EQ(buckets[0], buckets[1]);
  EXPECT_EQ(std::count(buckets[0].begin(), buckets[0].end(), ':'), 4) << buckets[0];
  EXPECT_EQ(buckets[0].substr(0, 5), "2:fc4") << buckets[0];
}

TYPED_TEST(DdpTest, UnusedTiedFrozenAndNarrowParameters) {
  run_ranks(3, [](RankContext& context) {
    return train_some<TypeParam>(context, "mixed", {.find_unused_parameters = true});
  });
}

TYPED_TEST(DdpTest, UnusedParameterWithoutTheOptionIsAnErrorAtTheNextForward) {
  run_ranks(2, [](RankContext& context) -> std::string {
    const auto model = model_of_rank("mixed", context.rank);
    const auto ddp = TypeParam::wrap(module_of(model), context.group);
    mean_loss(*model, ddp->forward(input_of(*model, context.rank, 0))).backward();
    try {
      ddp->forward(input_of(*model, context.rank, 1));
    } catch (const c10::Error& error) {
      require(error.msg().find("Expected to have finished reduction") != std::string::npos,
              error.msg());
      return "";
    }
    throw std::runtime_error("no error");
  });
}

TYPED_TEST(DdpTest, NoSyncAccumulatesAndTheNextBackwardReducesTheSum) {
  run_ranks(3, [](RankContext& context) -> std::string {
    const auto model = model_of_rank("mlp", context.rank);
    const auto ddp = TypeParam::wrap(module_of(model), context.group);
    {
      const parallel::NoSync no_sync(*ddp);
      mean_loss(*model, ddp->forward(input_of(*model, context.rank, 0))).backward();
    }
    const auto local = model_of_rank("mlp", 0);
    mean_loss(*local, local->forward(input_of(*local, context.rank, 0))).backward();
    require(at::allclose(model->parameters()[0].tensor.grad(), local->parameters()[0].tensor.grad(),
                         0, 1e-12),
            "a local gradient under no_sync");
    mean_loss(*model, ddp->forward(input_of(*model, context.rank, 1))).backward();
    std::vector<Tensor> sum = expected_gradients("mlp", context.world, 0);
    const std::vector<Tensor> second = expected_gradients("mlp", context.world, 1);
    for (std::size_t i = 0; i < sum.size(); ++i)
      sum[i] = sum[i] + second[i];
    require_gradients(*model, sum);
    return "";
  });
}

// A module with one buffer that becomes the mean of the last training input; rank r sees r + 1.15.
struct Statistics {
  Tensor weight = at::ones({1}, at::kDouble).set_requires_grad(true);
  Tensor mean = at::zeros({1}, at::kDouble);
  bool training{true};
  double at_entry{};

  Module module() {
    Module view;
    view.parameters = {{"weight", weight}};
    view.buffers = [this] { return std::vector<parallel::NamedTensor>{{"mean", mean}}; };
    view.forward = [this](const Tensor& input) {
      at_entry = mean.item<double>();
      if (training) {
        const at::NoGradGuard no_grad;
        mean.copy_(input);
      }
      return weight * input;
    };
    return view;
  }
};

void require_entry(const Statistics& module, double expected, const std::string& when) {
  require(std::abs(module.at_entry - expected) < 1e-12, "mean " + std::to_string(expected) +
                                                            " at entry of " + when + ", not " +
                                                            std::to_string(module.at_entry));
}

template <class D>
std::string buffer_table(RankContext& context, bool broadcast) {
  Statistics module;
  const auto ddp = D::wrap(module.module(), context.group, {.broadcast_buffers = broadcast});
  const double own = context.rank + 1.15;
  const double rank0 = broadcast ? 1.15 : own;
  const Tensor input = at::full({1}, own, at::kDouble);
  const auto train = [&] { ddp->forward(input).backward(); };
  train();
  require_entry(module, 0, "the first forward");
  train();
  require_entry(module, rank0, "the second forward");
  {
    const at::NoGradGuard no_grad;
    ddp->forward(input);
  }
  require_entry(module, rank0, "a forward under no_grad");
  train();
  require_entry(module, own, "the forward after no_grad");
  train();
  require_entry(module, rank0, "the forward after that");
  {
    const parallel::NoSync no_sync(*ddp);
    ddp->forward(input).backward();
  }
  require_entry(module, rank0, "a forward in no_sync");
  train();
  require_entry(module, own, "the forward after no_sync");
  train();
  module.training = false;
  const at::NoGradGuard no_grad;
  ddp->forward(input);
  require_entry(module, rank0, "the first forward of an evaluation");
  module.mean.fill_(own);
  ddp->forward(input);
  require_entry(module, own, "the second forward of an evaluation");
  return "";
}

TYPED_TEST(DdpTest, BuffersAtEntryOfForward) {
  run_ranks(2, [](RankContext& context) { return buffer_table<TypeParam>(context, true); });
  run_ranks(2, [](RankContext& context) { return buffer_table<TypeParam>(context, false); });
}

// What two forwards before one backward do.
template <class D>
std::string double_forward(RankContext& context, const std::string& name, bool keep_first = true,
                           bool broadcast = true) {
  const auto model = model_of_rank(name, context.rank);
  const auto ddp = D::wrap(module_of(model), context.group, {.broadcast_buffers = broadcast});
  Tensor first = mean_loss(*model, ddp->forward(input_of(*model, context.rank, 0)));
  if (!keep_first)
    first = Tensor();
  try {
    const Tensor second = mean_loss(*model, ddp->forward(input_of(*model, context.rank, 1)));
    (keep_first ? first + second : second).backward();
    ddp->forward(input_of(*model, context.rank, 2));  // `first` lives, but its backward is done.
    return "ran";
  } catch (const parallel::Refusal& refusal) {
    return refusal.what();
  }
}

TYPED_TEST(DdpTest, RefusesToOverwriteABufferThatAPendingBackwardReads) {
  for (const std::string& said : run_ranks(
           3, [](RankContext& context) { return double_forward<TypeParam>(context, "ema"); })) {
    EXPECT_NE(said.find("forward 2"), std::string::npos) << said;
    EXPECT_NE(said.find("'factor'"), std::string::npos) << said;
    EXPECT_NE(said.find("forward 1"), std::string::npos) << said;
  }
}

TYPED_TEST(DdpTest, TwoForwardsAreHealthyWhereNothingIsRead) {
  // Batch normalisation saves its running statistics without reading them; a graph that is gone
  // reads nothing.
  for (const auto& said : run_ranks(
           2, [](RankContext& context) { return double_forward<TypeParam>(context, "conv_bn"); }))
    EXPECT_EQ(said, "ran");
  for (const auto& said : run_ranks(2, [](RankContext& context) {
         return double_forward<TypeParam>(context, "ema", false);
       }))
    EXPECT_EQ(said, "ran");
  for (const auto& said : run_ranks(2, [](RankContext& context) {
         return double_forward<TypeParam>(context, "ema", true, false);
       }))
    EXPECT_EQ(said, "ran");
}

// weight * constant + offset: the graph reads the constant and does not read the offset.
template <class D>
std::string constants(RankContext& context) {
  const Tensor weight = at::ones({1}, at::kDouble).set_requires_grad(true);
  const Tensor constant = at::full({1}, 2.0, at::kDouble);
  Tensor offset = at::full({1}, 1.0, at::kDouble);
  Module module;
  module.parameters = {{"weight", weight}};
  module.buffers = [&] {
    return std::vector<parallel::NamedTensor>{{"constant", constant}, {"offset", offset}};
  };
  module.forward = [&](const Tensor& input) { return weight * constant * input + offset; };
  const auto ddp = D::wrap(std::move(module), context.group);
  const Tensor input = at::full({1}, context.rank + 1.0, at::kDouble);
  const Tensor first = ddp->forward(input);
  {
    const at::NoGradGuard no_grad;
    offset.add_(1);
  }
  try {
    const Tensor second = ddp->forward(input);
    (first + second).backward();
    return "ran";
  } catch (const parallel::Refusal& refusal) {
    return refusal.what();
  }
}

TYPED_TEST(DdpTest, AConstantBufferAndAnAddedOneAreHealthy) {
  for (const auto& said :
       run_ranks(2, [](RankContext& context) { return constants<TypeParam>(context); }))
    EXPECT_EQ(said, "ran");
}

TYPED_TEST(DdpTest, AModuleWithoutTrainableParametersIsRefused) {
  run_ranks(1, [](RankContext& context) -> std::string {
    Module module;
    module.parameters = {{"frozen", at::ones({1})}};
    module.buffers = [] { return std::vector<parallel::NamedTensor>{}; };
    try {
      TypeParam::wrap(std::move(module), context.group);
    } catch (const c10::Error& error) {
      require(error.msg().find("no parameter that requires a gradient") != std::string::npos,
              error.msg());
      return "";
    }
    throw std::runtime_error("no error");
  });
}

}  // namespace
}  // namespace lockstep::test
