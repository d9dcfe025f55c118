// The two implementations of DDP against each other: bit for bit where the same parameters share a
// bucket. Then their options, and what they say when they are used wrongly.

#include "fixtures/implementations/bucketed_ddp.h"

#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "fixtures/implementations/ddp.h"
#include "tests/torch/training.h"

namespace lockstep::test {
namespace {

using at::Tensor;
using parallel::BucketedDdp;
using parallel::Ddp;
using parallel::DdpOptions;

// Gradients of three steps of two replicas of one model, one under each implementation; they must
// be the same bits, and the buckets the same.
void require_same_bits(RankContext& context, const std::string& name, at::ScalarType dtype,
                       const DdpOptions& options, bool integers) {
  const auto theirs = model_of_rank(name, context.rank, dtype);
  const auto ours = model_of_rank(name, context.rank, dtype);
  const auto ddp = Ddp::wrap(module_of(theirs), context.group, options);
  const auto bucketed = BucketedDdp::wrap(module_of(ours), context.group, options);
  for (int step = 0; step < 3; ++step) {
    const Tensor drawn = input_of(*ours, context.rank, step);
    const Tensor input = (integers ? at::round(drawn * 3) : drawn).to(dtype);
    const auto backward = [&](host::Model& model, parallel::Wrapper& wrapper) {
      clear_gradients(model);
      const Tensor output = wrapper.forward(input);
      (integers ? output.sum() * 30 : mean_loss(model, output)).backward();
    };
    backward(*theirs, *ddp);
    backward(*ours, *bucketed);
    const auto sorted = [](std::vector<std::vector<std::string>> buckets) {
      std::sort(buckets.begin(), buckets.end());  // Leftovers of two dtypes have no order there.
      return buckets;
    };
    require(sorted(ddp->buckets()) == sorted(bucketed->buckets()), "the same buckets");
    for (std::size_t i = 0; i < ours->parameters().size(); ++i) {
      const Tensor a = theirs->parameters()[i].tensor.grad();
      const Tensor b = ours->parameters()[i].tensor.grad();
      const std::string& parameter = ours->parameters()[i].name;
      require(a.defined() == b.defined(), "a gradient of " + parameter + " from both or neither");
      require(!a.defined() || (at::equal(a, b) && a.strides() == b.strides()),
              "the same bits in the gradient of " + parameter);
    }
  }
}

TEST(BucketedDdp, HasTheBitsOfTheReducerOnIntegers) {
  for (const int world : {2, 3}) {
    for (const bool view : {false, true}) {
      run_ranks(world, [view](RankContext& context) -> std::string {
        require_same_bits(context, "linear_int", at::kFloat, {.gradient_as_bucket_view = view},
                          /*integers=*/true);
        return "";
      });
    }
  }
}

TEST(BucketedDdp, HasTheBitsOfTheReducerInFloatsWhereTheBucketsAreTheSame) {
  for (const int world : {2, 3}) {
    run_ranks(world, [](RankContext& context) -> std::string {
      for (const bool view : {false, true}) {
        const DdpOptions small{
            .gradient_as_bucket_view = view, .bucket_cap_bytes = 512, .first_bucket_bytes = 128};
        require_same_bits(context, "mlp", at::kFloat, small, false);
        require_same_bits(context, "conv_bn", at::kDouble, {.gradient_as_bucket_view = view},
                          false);
        DdpOptions unused = small;
        unused.find_unused_parameters = true;
        require_same_bits(context, "mixed", at::kFloat, unused, false);
      }
      return "";
    });
  }
}

// ---- Buckets.

TEST(BucketedDdp, TakesTheOrderOfRank0) {
  const auto buckets = run_ranks(2, [](RankContext& context) -> std::string {
    std::vector<parallel::NamedTensor> parameters;
    for (const char* name : {"a", "b", "c"})
      parameters.push_back({name, leaf(at::ones({1}, at::kDouble))});
    const auto ddp = BucketedDdp::wrap(
        make_module(parameters,
                    [&](const Tensor& input) {
                      // Rank 1 finishes its gradients in another order.
                      Tensor value = input;
                      for (const int i : context.rank == 0 ? std::vector<int>{0, 1, 2}
                                                           : std::vector<int>{2, 0, 1})
                        value = value * parameters[static_cast<std::size_t>(i)].tensor;
                      return value;
                    }),
        context.group, {.bucket_cap_bytes = 8, .first_bucket_bytes = 8});
    for (int step = 0; step < 3; ++step) {
      for (const auto& parameter : parameters)
        parameter.tensor.mutable_grad().reset();
      ddp->forward(at::full({1}, context.rank + 1.0, at::kDouble)).backward();
      for (const auto& parameter : parameters)
        require(parameter.tensor.grad().item<double>() == 1.5, "the mean for " + parameter.name);
    }
    std::string text;
    for (const auto& bucket : ddp->buckets())
      text += bucket.front() + "|";
    return text;
  });
  EXPECT_EQ(buckets[0], "c|b|a|");
  EXPECT_EQ(buckets[1], buckets[0]);
}

// ---- Options of one or both.

template <class D>
struct BothDdps : testing::Test {};
using Both = testing::Types<Ddp, BucketedDdp>;
TYPED_TEST_SUITE(BothDdps, Both, );

TYPED_TEST(BothDdps, GradientAsBucketViewAccumulatesInTheBucket) {
  run_ranks(2, [](RankContext& context) -> std::string {
    const Tensor weight = leaf(at::ones({3}, at::kDouble));
    const auto ddp =
        TypeParam::wrap(make_module({{"weight", weight}},
                                    [&](const Tensor& input) { return (weight * input).sum(); }),
                        context.group, {.gradient_as_bucket_view = true});
    const Tensor input = at::full({3}, context.rank + 1.0, at::kDouble);
    ddp->forward(input).backward();  // The mean, 1.5.
    ddp->forward(input).backward();  // Rank r accumulates r + 1; the mean of that.
    const void* const where = weight.grad().const_data_ptr();
    require(at::equal(weight.grad(), at::full({3}, 3.0, at::kDouble)), "3 after two backwards");
    {
      const parallel::NoSync no_sync(*ddp);
      ddp->forward(input).backward();
    }
    require(at::equal(weight.grad(), input + 3), "a local gradient on top");
    ddp->forward(input).backward();
    require(at::equal(weight.grad(), at::full({3}, 6.0, at::kDouble)), "6 after the fourth");
    require(weight.grad().const_data_ptr() == where, "the gradient stays where the bucket is");
    return "";
  });
}

TYPED_TEST(BothDdps, IgnoredNamesStayLocal) {
  run_ranks(2, [](RankContext& context) -> std::string {
    const double own = context.rank + 1.0;
    const Tensor shared = leaf(at::full({1}, own, at::kDouble));
    const Tensor local = leaf(at::full({1}, own, at::kDouble));
    const Tensor buffer = at::full({1}, own, at::kDouble);
    const auto ddp =
        TypeParam::wrap(make_module({{"shared", shared}, {"local", local}},
                                    [&](const Tensor& input) { return (shared + local) * input; },
                                    {{"buffer", buffer}}),
                        context.group, {.ignored = {"local", "buffer"}});
    require(shared.item<double>() == 1 && local.item<double>() == own, "only the shared one equal");
    ddp->forward(at::full({1}, own, at::kDouble)).backward();
    require(shared.grad().item<double>() == 1.5, "the mean gradient of the shared one");
    require(local.grad().item<double>() == own, "the local gradient of the ignored one");
    require(buffer.item<double>() == own, "the ignored buffer untouched");
    return "";
  });
}

TEST(Ddp, StaticGraphAllowsUnusedParametersAndSeveralUses) {
  run_ranks(2, [](RankContext& context) -> std::string {
    const Tensor used = leaf(at::ones({1}, at::kDouble));
    const Tensor unused = leaf(at::ones({1}, at::kDouble));
    const auto ddp =
        Ddp::wrap(make_module({{"used", used}, {"unused", unused}},
                              [&](const Tensor& input) { return used * (used * input); }),
                  context.group, {.static_graph = true});
    for (int step = 0; step < 4; ++step) {
      used.mutable_grad().reset();
      ddp->forward(at::full({1}, context.rank + 1.0, at::kDouble)).backward();
      require(used.grad().item<double>() == 3, "the mean gradient at step " + std::to_string(step));
      require(!unused.grad().defined(), "no gradient of the unused one");
    }
    require_text(raised([&] { ddp->join({}); }), {"static graph cannot be joined"});
    return "";
  });
}

TEST(BucketedDdp, RefusesWhatOnlyDdpHas) {
  run_ranks(1, [](RankContext& context) -> std::string {
    const Tensor weight = leaf(at::ones({1}));
    require_text(raised([&] {
                   BucketedDdp::wrap(make_module({{"weight", weight}}, {}), context.group,
                                     {.static_graph = true});
                 }),
                 {"bucketed_ddp", "static_graph", "use Ddp"});
    return "";
  });
}

// ---- What is said when they are used wrongly.

TYPED_TEST(BothDdps, ModelDiffShapeAcrossRanks) {  // And ...NumParamsAcrossRanks.
  run_ranks(3, [](RankContext& context) -> std::string {
    const Tensor weight = leaf(at::ones({context.rank == 2 ? 5 : 4}));
    const Tensor bias = leaf(at::ones({1}));
    const auto wrap = [&](std::vector<parallel::NamedTensor> parameters) {
      TypeParam::wrap(make_module(std::move(parameters), {}), context.group);
    };
    require_text(raised([&] {
                   wrap({{"bias", bias}, {"weight", weight}});
                 }),
                 {"parameter 'weight' is Float [4]", "on rank 0 and Float [5]", "on rank 2"});
    std::vector<parallel::NamedTensor> some{{"bias", bias}};
    if (context.rank != 1)
      some.push_back({"other", leaf(at::ones({1}))});
    require_text(raised([&] { wrap(some); }),
                 {"rank 0 has 2 parameters that require a gradient and rank 1 has 1"});
    return "";
  });
}

TYPED_TEST(BothDdps, NamesAParameterThatIsMarkedReadyTwice) {
  run_ranks(2, [](RankContext& context) -> std::string {
    const Tensor first = leaf(at::ones({1}));
    const Tensor second = leaf(at::ones({1}));
    int forwards = 0;
    const auto ddp = TypeParam::wrap(
        make_module(
            {{"first", first}, {"second", second}},
            [&](const Tensor& input) { return (forwards++ == 0 ? first : second) * input; }),
        context.group, {.find_unused_parameters = true});
    // Two forwards, of which only the second is looked through for unused parameters.
    const Tensor one = ddp->forward(at::ones({1}));
    const Tensor two = ddp->forward(at::ones({1}));
    require_text(raised<std::exception>([&] { (one + two).backward(); }),
                 {"mark a variable ready only once", "first"});
    return "";
  });
}

TYPED_TEST(BothDdps, NamesAParameterThatGotNoGradient) {
  run_ranks(2, [](RankContext& context) -> std::string {
    const Tensor used = leaf(at::ones({1}));
    const Tensor unused = leaf(at::ones({1}));
    const auto ddp = TypeParam::wrap(make_module({{"used", used}, {"left.out", unused}},
                                                 [&](const Tensor& input) { return used * input; }),
                                     context.group);
    ddp->forward(at::ones({1})).backward();
    const std::string text = raised([&] { ddp->forward(at::ones({1})); });
    require_text(text, {"Expected to have finished reduction in the prior iteration"});
    if (std::is_same_v<TypeParam, BucketedDdp>)
      require_text(text, {"'left.out'"});  // The Reducer tells names in its debug mode only.
    return "";
  });
}

}  // namespace
}  // namespace lockstep::test
