// Uneven inputs: the facts of PyTorch's own tests of Join, under the names they have there, with
// both implementations of DDP.

#include "fixtures/implementations/join.h"

#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "fixtures/implementations/bucketed_ddp.h"
#include "fixtures/implementations/ddp.h"
#include "fixtures/implementations/sync_batch_norm.h"
#include "tests/torch/training.h"

namespace lockstep::test {
namespace {

using at::Tensor;
using parallel::BucketedDdp;
using parallel::Ddp;
using parallel::DdpOptions;
using parallel::JoinOptions;

// A linear layer without bias.
struct Linear {
  Tensor weight;
  explicit Linear(Tensor value) : weight(leaf(value)) {}
  parallel::Module module() {
    return make_module({{"weight", weight}},
                       [this](const Tensor& input) { return at::linear(input, weight); });
  }
  void sgd(double rate) {
    const at::NoGradGuard no_grad;
    weight.sub_(weight.grad(), rate);
    weight.mutable_grad().reset();
  }
};

void require_equal_on_all_ranks(RankContext& context, const Tensor& value) {
  Tensor copy = value.detach().clone();
  std::vector<Tensor> tensors{copy};
  context.group->broadcast(tensors)->wait();
  require(at::equal(copy, value.detach()), "the same value on every rank");
}

template <class D>
struct JoinTest : testing::Test {};
using Both = testing::Types<Ddp, BucketedDdp>;
TYPED_TEST_SUITE(JoinTest, Both, );

// distributed_test.py: test_ddp_grad_div_uneven_inputs, dim 5, grad_scale 50, 3 and 5 iterations.
TYPED_TEST(JoinTest, DdpGradDivUnevenInputs) {
  for (const int world : {2, 3}) {
    run_ranks(world, [](RankContext& context) -> std::string {
      Linear net(at::ones({5, 5}));
      const auto ddp = TypeParam::wrap(net.module(), context.group, {.bucket_cap_bytes = 1 << 20});
      const Tensor input = at::full({1, 5}, 50.0);
      for (const bool by_initial : {false, true}) {
        const auto join = ddp->join({.divide_by_initial_world_size = by_initial});
        for (int i = 0; i < (context.rank == 0 ? 3 : 5); ++i) {
          ddp->forward(input).sum().backward();
          const int live = i >= 3 ? context.world - 1 : context.world;
          const double expected = by_initial ? 50.0 * live / context.world : 50.0;
          require(at::allclose(net.weight.grad(), at::full({5, 5}, expected), 1.3e-6, 1e-5),
                  "gradient " + std::to_string(expected) + " at iteration " + std::to_string(i));
          net.weight.mutable_grad().reset();
        }
        join->exhausted();
      }
      return "";
    });
  }
}

// distributed_test.py: test_ddp_join_model_equivalence: rank r runs 2 (r + 1) iterations of the
// same batch at rate x W; the weights are those of one process with the sum of iterations.
TYPED_TEST(JoinTest, DdpJoinModelEquivalence) {
  run_ranks(3, [](RankContext& context) -> std::string {
    const Tensor start = at::sin(at::arange(100, at::kDouble)).reshape({10, 10});
    const Tensor input = at::cos(at::arange(30, at::kDouble)).reshape({3, 10});
    Linear local(start);
    for (int i = 0; i < 2 + 4 + 6; ++i) {
      at::linear(input, local.weight).sum().backward();
      local.sgd(0.03);
    }
    Linear net(start);
    const auto ddp = TypeParam::wrap(net.module(), context.group);
    const auto join = ddp->join({});
    for (int i = 0; i < 2 * (context.rank + 1); ++i) {
      ddp->forward(input).sum().backward();
      net.sgd(0.03 * context.world);
    }
    join->exhausted();
    require(at::allclose(net.weight, local.weight, 0, 1e-12), "the weights of one process");
    return "";
  });
}

// distributed_test.py: test_ddp_uneven_inputs: baselines 0 and 5, offsets 2, 3 and 10, without and
// with accumulation; a model with buffers, one with unused parameters.
template <class D>
void uneven(RankContext& context, const std::string& name, const DdpOptions& options,
            int iterations, int sync_interval) {
  const auto model = model_of_rank(name, context.rank);
  const auto ddp = D::wrap(module_of(model), context.group, options);
  const auto join = ddp->join({});
  for (int i = 0; i < iterations; ++i) {
    ddp->set_gradient_sync(i % sync_interval == 0);
    mean_loss(*model, ddp->forward(input_of(*model, context.rank, i))).backward();
    if (i % sync_interval != 0)
      continue;
    const at::NoGradGuard no_grad;
    for (const auto& parameter : model->parameters()) {
      if (parameter.tensor.grad().defined())
        parameter.tensor.sub_(parameter.tensor.grad(), 0.01);
    }
    clear_gradients(*model);
  }
  join->exhausted();
  for (const auto& parameter : model->parameters())
    require_equal_on_all_ranks(context, parameter.tensor);
  for (const auto& buffer : model->buffers())
    require_equal_on_all_ranks(context, buffer.tensor);
}

TYPED_TEST(JoinTest, DdpUnevenInputs) {
  const struct {
    const char* model;
    DdpOptions options;
  } cases[] = {
      {"conv_bn", {}},
      {"mlp", {.bucket_cap_bytes = 512, .first_bucket_bytes = 128}},
      {"mixed", {.find_unused_parameters = true, .gradient_as_bucket_view = true}},
  };
  for (const auto& one : cases) {
    run_ranks(3, [&](RankContext& context) -> std::string {
      for (const int baseline : {0, 5}) {
        for (const int offset : {2, 3, 10}) {
          // The last rank runs longest; sync every iteration, then every second one.
          const int iterations = baseline + context.rank * offset;
          uneven<TypeParam>(context, one.model, one.options, iterations, offset == 3 ? 2 : 1);
        }
      }
      return "";
    });
  }
}

// The state at the end is the last joiner's, also where a smaller rank runs longest.
TYPED_TEST(JoinTest, TheLastJoinersStateIsEverybodys) {
  run_ranks(3, [](RankContext& context) -> std::string {
    Linear net(at::ones({1, 1}, at::kDouble));
    const auto ddp = TypeParam::wrap(net.module(), context.group);
    const auto join = ddp->join({});
    const int iterations[] = {2, 4, 0};
    for (int i = 0; i < iterations[context.rank]; ++i) {
      ddp->forward(at::ones({1, 1}, at::kDouble)).sum().backward();
      net.sgd(0.3);
    }
    join->exhausted();
    // Two steps of two thirds of the gradient and two of one third.
    require(std::abs(net.weight.template item<double>() - (1 - 0.3 * (2 * 2 + 2) / 3)) < 1e-12,
            "rank 1's weight");
    return "";
  });
}

// distributed_test.py: test_ddp_uneven_inputs_stop_iteration_sync_bn: a module with collectives of
// its own (synchronised batch normalisation, or any other) is not shadowed, so running out must be
// told at once. Exact texts, n == 5, equal models.
template <class D>
void stop_iteration(RankContext& context, Linear& net, parallel::Module module) {
  const auto ddp = D::wrap(std::move(module), context.group);
  const auto join = ddp->join({.throw_on_early_termination = true});
  int n = 0;
  const std::string text = raised<parallel::Refusal>([&] {
    for (int i = 0; i < (context.rank == 0 ? 10 : 5); ++i) {
      const Tensor input = at::sin(at::arange(20, at::kDouble) + context.rank).reshape({10, 2});
      ddp->forward(input).square().sum().backward();
      net.sgd(0.01);
      ++n;
    }
    join->exhausted();
  });
  require(text == (context.rank == 0
                       ? "Detected at least one rank that exhausted inputs. Throwing across all "
                         "ranks."
                       : "Rank " + std::to_string(context.rank) + " exhausted all inputs."),
          text);
  require(n == 5, "five iterations on every rank");
  require_equal_on_all_ranks(context, net.weight);
}

TYPED_TEST(JoinTest, DdpUnevenInputsStopIterationSyncBn) {
  run_ranks(3, [](RankContext& context) -> std::string {
    Linear with_a_sum(at::ones({40, 2}, at::kDouble));
    parallel::Module module = with_a_sum.module();
    module.forward = [&](const Tensor& input) {
      const Tensor output = at::linear(input, with_a_sum.weight);
      std::vector<Tensor> mean{output.detach().mean().reshape({1})};
      context.group->allreduce(mean)->wait();
      return output - mean[0] / context.world;
    };
    stop_iteration<TypeParam>(context, with_a_sum, module);

    Linear synchronised(at::ones({40, 2}, at::kDouble));
    const auto norm =
        std::make_shared<parallel::SyncBatchNorm>(parallel::group_exchange(context.group));
    module = synchronised.module();
    module.forward = [&](const Tensor& input) {
      return norm->forward(at::linear(input, synchronised.weight), {});
    };
    stop_iteration<TypeParam>(context, synchronised, module);
    return "";
  });
}

// distributed_test.py: test_ddp_uneven_inputs_join_disable: even inputs, nothing told or shadowed,
// gradients as ever.
TYPED_TEST(JoinTest, DdpUnevenInputsJoinDisable) {
  run_ranks(2, [](RankContext& context) -> std::string {
    Linear net(at::ones({1, 2}, at::kDouble));
    const auto ddp = TypeParam::wrap(net.module(), context.group);
    const auto before = context.group->getBackend(c10::kCPU)->getSequenceNumberForGroup();
    const auto join = ddp->join({.enable = false});
    join->exhausted();
    require(context.group->getBackend(c10::kCPU)->getSequenceNumberForGroup() == before,
            "no collective");
    for (int i = 0; i < 5; ++i) {
      ddp->forward(at::full({1, 2}, context.rank + 1.0, at::kDouble)).sum().backward();
      require(at::equal(net.weight.grad(), at::full({1, 2}, 1.5, at::kDouble)), "the mean");
      net.weight.mutable_grad().reset();
    }
    return "";
  });
}

// distributed_test.py: test_ddp_uneven_input_exception: an exception inside is nobody's to shadow.
TYPED_TEST(JoinTest, DdpUnevenInputException) {
  run_ranks(2, [](RankContext& context) -> std::string {
    Linear net(at::ones({1, 2}, at::kDouble));
    parallel::Module module = net.module();
    module.forward = [](const Tensor&) -> Tensor { throw std::runtime_error("Intentional error"); };
    const auto ddp = TypeParam::wrap(std::move(module), context.group);
    const std::string text = raised<std::runtime_error>([&] {
      const auto join = ddp->join({});
      ddp->forward(at::ones({1, 2}, at::kDouble));
    });
    require(text == "Intentional error", text);
    return "";
  });
}

// distributed_test.py: test_ddp_join_respects_forward_sync_buffers_false.
TYPED_TEST(JoinTest, DdpJoinRespectsForwardSyncBuffersFalse) {
  run_ranks(3, [](RankContext& context) -> std::string {
    Linear net(at::ones({1, 2}, at::kDouble));
    const Tensor local = at::full({1}, context.rank + 1.0, at::kDouble);
    parallel::Module module = net.module();
    module.buffers = [&] { return std::vector<parallel::NamedTensor>{{"rank_local", local}}; };
    const auto ddp =
        TypeParam::wrap(std::move(module), context.group, {.broadcast_buffers = false});
    const auto join = ddp->join({});
    for (int i = 0; i < context.rank + 1; ++i)
      ddp->forward(at::ones({1, 2}, at::kDouble)).sum().backward();
    join->exhausted();
    require(local.item<double>() == context.rank + 1.0, "its own buffer");
    return "";
  });
}

// A parameter that nobody uses stays without gradient even if ranks shadow for long.
TYPED_TEST(JoinTest, ShadowsDoNotCountAsUse) {
  run_ranks(2, [](RankContext& context) -> std::string {
    const Tensor used = leaf(at::ones({1}, at::kDouble));
    const Tensor rare = leaf(at::ones({1}, at::kDouble));
    int step = 0;
    const auto ddp = TypeParam::wrap(
        make_module({{"used", used}, {"rare", rare}},
                    [&](const Tensor& x) { return step == 0 ? used * rare * x : used * x; }),
        context.group, {.find_unused_parameters = true});
    const auto join = ddp->join({});
    for (; step < (context.rank == 0 ? 1 : 40); ++step) {
      rare.mutable_grad().reset();
      ddp->forward(at::ones({1}, at::kDouble)).backward();
      require(rare.grad().defined() == (step == 0), "a gradient only where it was used");
    }
    join->exhausted();
    return "";
  });
}

// ---- test/distributed/algorithms/test_join.py, with its AllReducer.

class AllReducer : public parallel::Joinable {
 public:
  AllReducer(const parallel::Group& group, int each) : group_(group), each_(each) {}

  int call() {
    if (parallel::Join* const join = active_join())
      join->notify();
    return reduce(1);
  }
  [[nodiscard]] const parallel::Group& join_group() const override { return group_; }
  [[nodiscard]] at::Device join_device() const override { return at::kCPU; }
  void shadow() override { reduce(0); }
  void joined(bool last) override { last_joiner = parallel::largest_rank(group_, at::kCPU, last); }

  int last_joiner{-1};

 private:
  int reduce(int mine) {
    int sum = 0;
    for (int i = 0; i < each_; ++i) {
      std::vector<Tensor> value{at::full({1}, mine, at::kInt)};
      group_->allreduce(value)->wait();
      sum = value[0].item<int>();
    }
    return sum;
  }

  parallel::Group group_;
  int each_;  ///< All-reduces in a call.
};

// Rank r has 3 + r inputs. The sum of what the last call of each iteration returned.
int join_all(const RankContext& context, AllReducer& one, const JoinOptions& options) {
  parallel::Join join(one, options);
  int total = 0;
  for (int i = 0; i < 3 + (options.enable ? context.rank : 0); ++i)
    total += one.call();
  join.exhausted();
  return total;
}

int expected_total(const RankContext& context) {
  int total = context.world * 3;
  for (int k = 1; k <= context.rank; ++k)
    total += context.world - k;
  return total;
}

TEST(Join, SingleJoinableMainHooks) {  // And test_single_joinable_post_hooks.
  for (const int world : {2, 3}) {
    run_ranks(world, [](RankContext& context) -> std::string {
      for (const int each : {1, 2}) {
        AllReducer one(context.group, each);
        require(join_all(context, one, {}) == expected_total(context), "W*3 + sum of (W-k)");
        require(one.last_joiner == context.world - 1, "the last rank as last joiner");
      }
      return "";
    });
  }
}

TEST(Join, SingleJoinableDisable) {
  run_ranks(2, [](RankContext& context) -> std::string {
    AllReducer one(context.group, 1);
    require(join_all(context, one, {.enable = false}) == context.world * 3, "W*3");
    return "";
  });
}

TEST(Join, SingleJoinableThrow) {
  run_ranks(3, [](RankContext& context) -> std::string {
    AllReducer one(context.group, 1);
    require_text(raised<parallel::Refusal>(
                     [&] { join_all(context, one, {.throw_on_early_termination = true}); }),
                 {context.rank == 0 ? "Rank 0 exhausted all inputs."
                                    : "Detected at least one rank that exhausted inputs."});
    return "";
  });
}

TEST(Join, RefusesWhatCannotBeJoined) {
  run_ranks(1, [](RankContext& context) -> std::string {
    AllReducer one(context.group, 1);
    const parallel::Join join(one);
    require_text(raised([&] { parallel::Join again(one); }), {"another Join"});
    return "";
  });
}

}  // namespace
}  // namespace lockstep::test
