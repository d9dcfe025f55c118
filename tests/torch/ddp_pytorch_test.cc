// Facts of PyTorch's own tests of DDP, each under the name it has there, with both implementations.

#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <iterator>
#include <sstream>

#include "fixtures/implementations/bucketed_ddp.h"
#include "fixtures/implementations/ddp.h"
#include "tests/torch/training.h"

namespace lockstep::test {
namespace {

using at::Tensor;
using parallel::BucketedDdp;
using parallel::Ddp;

template <class D>
struct DdpFacts : testing::Test {};
using Both = testing::Types<Ddp, BucketedDdp>;
TYPED_TEST_SUITE(DdpFacts, Both, );

// test_c10d_gloo.py: test_global_local_unused_params_grad[_with_grad_is_view].
TYPED_TEST(DdpFacts, GlobalLocalUnusedParamsGrad) {
  for (const bool view : {false, true}) {
    run_ranks(2, [view](RankContext& context) -> std::string {
      const Tensor t0 = leaf(at::ones({2}));
      const Tensor t1 = leaf(at::ones({2}));
      const Tensor task_unused = leaf(at::ones({2}));
      const auto ddp = TypeParam::wrap(
          make_module({{"t0", t0}, {"t1", t1}, {"task_unused", task_unused}},
                      [&](const Tensor& x) { return ((context.rank == 0 ? t0 : t1) * x).sum(); }),
          context.group, {.find_unused_parameters = true, .gradient_as_bucket_view = view});
      for (int step = 0; step < 3; ++step) {
        for (const Tensor& tensor : {t0, t1})
          tensor.mutable_grad().reset();
        ddp->forward(at::full({2}, 4.0)).backward();
        for (const Tensor& tensor : {t0, t1})
          require(tensor.grad().defined() && at::equal(tensor.grad(), at::full({2}, 2.0)),
                  "half of the one gradient");
        require(!task_unused.grad().defined(), "a globally unused gradient untouched");
      }
      task_unused.mutable_grad() = at::full({2}, 7.0);
      ddp->forward(at::full({2}, 4.0)).backward();
      require(at::equal(task_unused.grad(), at::full({2}, 7.0)), "the value it had");
      return "";
    });
  }
}

// test_c10d_gloo.py: test_find_unused_parameters_when_unused_parameters_empty.
TYPED_TEST(DdpFacts, FindUnusedParametersWhenUnusedParametersEmpty) {
  run_ranks(2, [](RankContext& context) -> std::string {
    const Tensor t0 = leaf(at::ones({2}));
    const Tensor t1 = leaf(at::ones({2}));
    const auto ddp = TypeParam::wrap(make_module({{"t0", t0}, {"t1", t1}},
                                                 [&](const Tensor& x) {
                                                   return context.rank == 0 ? (t1 * (t0 * x)).sum()
                                                                            : (t1 * x).sum();
                                                 }),
                                     context.group, {.find_unused_parameters = true});
    ddp->forward(at::ones({2})).backward();
    require(t0.grad().defined() && t1.grad().defined(), "gradients of both on all ranks");
    return "";
  });
}

// distributed_test.py: test_undefined_grad_parity_unused_parameters.
TYPED_TEST(DdpFacts, UndefinedGradParityUnusedParameters) {
  run_ranks(2, [](RankContext& context) -> std::string {
    const Tensor used = leaf(at::ones({2}));
    const Tensor unused = leaf(at::ones({2}));
    for (const bool wrapped : {false, true}) {
      used.mutable_grad().reset();
      auto module = make_module({{"used", used}, {"unused", unused}},
                                [&](const Tensor& x) { return (used * x).sum(); });
      const auto ddp =
          wrapped ? TypeParam::wrap(module, context.group, {.find_unused_parameters = true})
                  : nullptr;
      (wrapped ? ddp->forward(at::ones({2})) : module.forward(at::ones({2}))).backward();
      require(!unused.grad().defined() && at::equal(used.grad(), at::ones({2})),
              "what a module without wrapper has");
    }
    return "";
  });
}

// distributed_test.py: test_ddp_control_flow_different_across_ranks.
TYPED_TEST(DdpFacts, ControlFlowDifferentAcrossRanks) {
  run_ranks(3, [](RankContext& context) -> std::string {
    const Tensor always = leaf(at::ones({1}, at::kDouble));
    const Tensor sometimes = leaf(at::ones({1}, at::kDouble));
    int step = 0;
    const auto ddp = TypeParam::wrap(
        make_module({{"always", always}, {"sometimes", sometimes}},
                    [&](const Tensor& x) {
                      return (step + context.rank) % 3 == 0 ? always * x * sometimes : always * x;
                    }),
        context.group, {.find_unused_parameters = true});
    for (; step < 6; ++step) {
      always.mutable_grad().reset();
      sometimes.mutable_grad().reset();
      ddp->forward(at::full({1}, 3.0, at::kDouble)).backward();
      require(always.grad().item<double>() == 3 && sometimes.grad().item<double>() == 1,
              "the average, zeros of others included");
    }
    return "";
  });
}

// distributed_test.py: test_accumulate_gradients_no_sync: ranks differ after even iterations, agree
// after odd ones.
TYPED_TEST(DdpFacts, AccumulateGradientsNoSync) {
  const auto texts = run_ranks(2, [](RankContext& context) -> std::string {
    const auto model = model_of_rank("mlp", context.rank);
    const auto ddp = TypeParam::wrap(module_of(model), context.group);
    std::string text;
    for (int iteration = 0; iteration < 4; ++iteration) {
      const auto step = [&] {
        mean_loss(*model, ddp->forward(input_of(*model, context.rank, iteration))).backward();
      };
      if (iteration % 2 == 0) {
        const parallel::NoSync no_sync(*ddp);
        step();
      } else {
        step();
      }
      text += c10::str(model->parameters()[0].tensor.grad().sum().template item<double>(), " ");
      if (iteration % 2 == 1)
        clear_gradients(*model);
    }
    return text;
  });
  const auto numbers = [&](std::size_t rank) {
    std::istringstream stream(texts[rank]);
    return std::vector<double>(std::istream_iterator<double>(stream), {});
  };
  ASSERT_EQ(numbers(0).size(), 4U);
  for (std::size_t i = 0; i < 4; ++i)
    EXPECT_EQ(numbers(0)[i] == numbers(1)[i], i % 2 == 1) << "iteration " << i;
}

// distributed_test.py: test_ddp_create_graph: six iterations, a scalar parameter, nothing raised.
TYPED_TEST(DdpFacts, DdpCreateGraph) {
  run_ranks(2, [](RankContext& context) -> std::string {
    const Tensor weight = leaf(at::ones({}, at::kDouble));
    const auto ddp = TypeParam::wrap(
        make_module({{"p", weight}}, [&](const Tensor&) { return weight.pow(2); }), context.group);
    for (int iteration = 0; iteration < 6; ++iteration) {
      const Tensor loss = ddp->forward(weight);
      torch::autograd::backward({loss}, {}, /*retain_graph=*/true, /*create_graph=*/true);
      weight.mutable_grad().reset();
    }
    return "";
  });
}

// distributed_test.py: test_ddp_broadcast_buffer.
TYPED_TEST(DdpFacts, DdpBroadcastBuffer) {
  run_ranks(3, [](RankContext& context) -> std::string {
    const Tensor weight = leaf(at::ones({2}));
    Tensor buffer = at::full({2}, context.rank + 0.0);
    const auto ddp = TypeParam::wrap(
        make_module({{"weight", weight}}, [&](const Tensor& x) { return (weight * x).sum(); },
                    {{"buffer", buffer}}),
        context.group);
    if (context.rank == 0)
      buffer.add_(1);
    ddp->forward(at::ones({2})).backward();
    require(at::equal(buffer, at::ones({2})), "rank 0's buffer everywhere");
    return "";
  });
}

// distributed_test.py: test_ddp_init_sync_buffers_with_forward_sync_buffers_false.
TYPED_TEST(DdpFacts, DdpInitSyncBuffersWithForwardSyncBuffersFalse) {
  run_ranks(2, [](RankContext& context) -> std::string {
    const Tensor weight = leaf(at::ones({2}));
    Tensor buffer = at::full({2}, context.rank + 5.0);
    const auto ddp = TypeParam::wrap(
        make_module({{"weight", weight}}, [&](const Tensor& x) { return (weight * x).sum(); },
                    {{"buffer", buffer}}),
        context.group, {.broadcast_buffers = false, .broadcast_initial_buffers = true});
    require(at::equal(buffer, at::full({2}, 5.0)), "rank 0's at construction");
    if (context.rank == 0)
      buffer.add_(1);
    ddp->forward(at::ones({2})).backward();
    require(at::equal(buffer, at::full({2}, context.rank == 0 ? 6.0 : 5.0)), "its own afterwards");
    return "";
  });
}

}  // namespace
}  // namespace lockstep::test
