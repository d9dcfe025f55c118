// The critic's step with a gradient penalty: its derivatives by finite differences, and under every
// wrapper against one process without any, with batch normalisation over all rows.

#include "fixtures/implementations/gradient_penalty.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "fixtures/implementations/balanced_data_parallel.h"
#include "fixtures/implementations/ddp.h"
#include "fixtures/implementations/sync_batch_norm.h"
#include "tests/torch/finite_differences.h"
#include "tests/torch/ranks.h"
#include "tests/torch/replica_modules.h"

namespace lockstep::test {
namespace {

using at::Tensor;
using parallel::CriticBatch;
using parallel::CriticStep;
using parallel::LossWeighting;
using parallel::Module;
using parallel::Penalty;
using parallel::PenaltyKind;
using parallel::ReplicaPlace;

constexpr PenaltyKind kKinds[] = {PenaltyKind::kWganGp, PenaltyKind::kWganLp, PenaltyKind::kDragan};

// A module as it is: one process, nothing around it.
class Alone : public parallel::Wrapper {
 public:
  explicit Alone(Module module) : module_(std::move(module)) {}
  Tensor forward(const Tensor& input) override { return module_.forward(input); }
  void set_gradient_sync(bool /*enabled*/) override {}
  [[nodiscard]] parallel::Contract contract() const override { return {}; }
  [[nodiscard]] std::vector<std::vector<std::string>> buckets() const override { return {}; }

 private:
  Module module_;
};

Inputs critic_values() {
  return {values({5, 3}), values({5}, 1), 1 + 0.1 * values({5}, 2), 0.1 * values({5}, 3),
          values({1, 5}, 4)};
}

std::shared_ptr<FunctionModule> critic_state() {
  auto state = std::make_shared<FunctionModule>();
  for (const Tensor& value : critic_values())
    state->parameters.push_back(leaf(value));
  return state;
}

// Two layers with batch normalisation between, over all members of `exchange`, or of this process.
Tensor critic_of(const Inputs& p, const Tensor& x,
                 const std::shared_ptr<parallel::StatisticsExchange>& exchange) {
  Tensor hidden = at::linear(x, p[0], p[1]);
  if (exchange)
    hidden = std::make_shared<parallel::SyncBatchNorm>(exchange)->forward(
        hidden, {.weight = p[2], .bias = p[3]});
  else
    hidden = at::batch_norm(hidden, p[2], p[3], Tensor(), Tensor(), true, 0.1, 1e-5, false);
  return at::linear(at::tanh(hidden), p[4]);
}

Tensor critic(const Inputs& p, Inputs& /*buffers*/, const Tensor& x, const ReplicaPlace& place) {
  return critic_of(p, x, place.exchange);
}

CriticBatch batch_of(std::int64_t first, std::int64_t rows, PenaltyKind kind) {
  const Tensor real = values({12, 3}, 0.2).narrow(0, first, rows);
  const Tensor fake = values({12, 3}, 1.1).narrow(0, first, rows);
  const Tensor share = (values({12}, 0.5) * 0.5 + 0.5).narrow(0, first, rows);
  return {real, fake,
          kind == PenaltyKind::kDragan ? real + 0.4 * share.unsqueeze(1)
                                       : parallel::interpolated(real, fake, share)};
}

Inputs gradients_of(parallel::Wrapper& wrapper, FunctionModule& state, const CriticBatch& batch,
                    PenaltyKind kind) {
  CriticStep step(wrapper, {.kind = kind, .weight = 10});
  step.loss(batch).backward();
  Inputs gradients;
  for (const Tensor& parameter : state.parameters)
    gradients.push_back(parameter.grad());
  return gradients;
}

Inputs alone(std::int64_t rows, PenaltyKind kind) {
  const auto state = critic_state();
  Alone wrapper(module_of(state, &critic));
  return gradients_of(wrapper, *state, batch_of(0, rows, kind), kind);
}

bool same(const Inputs& actual, const Inputs& expected) {
  for (std::size_t i = 0; i < expected.size(); ++i) {
    if (!at::allclose(actual[i], expected[i], 1e-12, 1e-13))
      return false;
  }
  return true;
}

TEST(GradientPenalty, GradientsAreThoseOfFiniteDifferences) {
  for (const PenaltyKind kind : kKinds) {
    const Differentiable loss = [kind](const Inputs& parameters) -> Inputs {
      const auto state = std::make_shared<FunctionModule>(FunctionModule{.parameters = parameters});
      Alone wrapper(module_of(state, &critic));
      return {CriticStep(wrapper, {.kind = kind, .weight = 10}).loss(batch_of(0, 7, kind))};
    };
    expect_gradient(loss, critic_values());
  }
}

TEST(GradientPenalty, IsWhatThePapersSay) {
  // A linear critic of slope (3, 4): the norm is 5 everywhere.
  const auto state = std::make_shared<FunctionModule>(
      FunctionModule{.parameters = {leaf(at::tensor({3.0, 4.0}, at::kDouble).reshape({1, 2}))}});
  Alone wrapper(module_of(state, [](const Inputs& p, Inputs&, const Tensor& x,
                                    const ReplicaPlace&) { return at::linear(x, p[0]); }));
  const CriticBatch batch{at::zeros({2, 2}, at::kDouble), at::ones({2, 2}, at::kDouble),
                          at::zeros({2, 2}, at::kDouble)};
  const auto loss = [&](PenaltyKind kind) {
    return CriticStep(wrapper, {.kind = kind, .weight = 10}).loss(batch).item<double>();
  };
  EXPECT_DOUBLE_EQ(loss(PenaltyKind::kWganGp), 7 + 10 * 16);
  EXPECT_DOUBLE_EQ(loss(PenaltyKind::kWganLp), 7 + 10 * 16);
  state->parameters[0].data().mul_(0.1);
  EXPECT_DOUBLE_EQ(loss(PenaltyKind::kWganGp), 0.7 + 10 * 0.25);
  EXPECT_DOUBLE_EQ(loss(PenaltyKind::kWganLp), 0.7);
}

TEST(GradientPenalty, PointsBetweenAndAround) {
  const Tensor real = at::zeros({2, 2}, at::kDouble);
  const Tensor fake = at::ones({2, 2}, at::kDouble);
  const Tensor share = at::tensor({0.25, 1.0}, at::kDouble);
  EXPECT_TRUE(at::allclose(parallel::interpolated(real, fake, share),
                           at::tensor({0.75, 0.75, 0.0, 0.0}, at::kDouble).reshape({2, 2})));
  const Tensor wide = at::tensor({-1.0, 1.0}, at::kDouble);
  EXPECT_TRUE(
      at::allclose(parallel::perturbed(wide, at::ones({2}, at::kDouble)), wide + 0.5 * wide.std()));
}

TEST(GradientPenalty, UnderReplicasThatNormaliseTogether) {
  for (const PenaltyKind kind : kKinds) {
    const Inputs expected = alone(8, kind);
    const CriticBatch batch = batch_of(0, 8, kind);
    {
      const auto state = critic_state();
      parallel::DataParallel wrapper(module_of(state, &critic), cpus(3));
      EXPECT_TRUE(same(gradients_of(wrapper, *state, batch, kind), expected));
    }
    const auto state = critic_state();
    parallel::BalancedDataParallel wrapper(module_of(state, &critic), cpus(3),
                                           LossWeighting::kSamples);
    EXPECT_TRUE(same(gradients_of(wrapper, *state, batch, kind), expected));
  }
}

TEST(GradientPenalty, UnderDdpThatNormalisesTogether) {
  for (const PenaltyKind kind : kKinds) {
    run_ranks(3, [kind](RankContext& context) -> std::string {
      const auto state = critic_state();
      const auto exchange = parallel::group_exchange(context.group);
      const auto wrapper = parallel::Ddp::wrap(
          module_of(state, [exchange](const Inputs& p, Inputs&, const Tensor& x,
                                      const ReplicaPlace&) { return critic_of(p, x, exchange); }),
          context.group);
      const Inputs actual =
          gradients_of(*wrapper, *state, batch_of(4 * context.rank, 4, kind), kind);
      require(same(actual, alone(12, kind)), "the gradient of one process");
      return "";
    });
  }
}

}  // namespace
}  // namespace lockstep::test
