// Differentiable collectives and the meeting of replicas, against the same computation in one
// process without any collective: values and derivatives of the first three orders.

#include "fixtures/implementations/collectives.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <thread>

#include "fixtures/implementations/statistics_exchange.h"
#include "tests/torch/ranks.h"

namespace lockstep::test {
namespace {

using at::Tensor;
using parallel::ReplicaExchange;
using parallel::StatisticsExchange;
using Tensors = std::vector<Tensor>;

Tensor input_of(std::size_t member) {
  return at::sin(at::arange(6, at::kDouble) * 0.9 + static_cast<double>(member) * 1.7)
      .reshape({2, 3})
      .set_requires_grad(true);
}

// A loss that is another one on every member, with derivatives of every order.
Tensor loss_of(std::size_t member, const Tensor& output) {
  return (output.pow(3) * (static_cast<double>(member) + 0.5)).sum();
}

Tensors inputs_of(std::size_t members) {
  Tensors inputs;
  for (std::size_t i = 0; i < members; ++i)
    inputs.push_back(input_of(i));
  return inputs;
}

// The value and three derivatives, each of the sum of squares of the one before, by input. The
// inputs are those of one member, or of all of them in one process.
std::vector<Tensors> derivatives(const Tensors& inputs, Tensor loss) {
  std::vector<Tensors> orders{{loss.detach()}};
  for (int order = 0; order < 3; ++order) {
    const Tensors gradients =
        torch::autograd::grad({loss}, inputs, {}, /*retain_graph=*/true, /*create_graph=*/true);
    orders.push_back(gradients);
    loss = at::zeros({}, at::kDouble);
    for (const Tensor& gradient : gradients)
      loss = loss + gradient.square().sum();
  }
  return orders;
}

using Local = std::function<Tensor(const Tensor& input)>;
// All members' outputs from all members' inputs, with plain operations.
using Together = std::function<Tensors(const Tensors& inputs)>;

void require_same(const std::vector<Tensors>& orders, const std::vector<Tensors>& expected,
                  std::size_t member) {
  for (std::size_t order = 1; order < orders.size(); ++order)
    require(at::allclose(orders[order][0], expected[order][member], 1e-12, 1e-12),
            "derivative " + std::to_string(order) + " of member " + std::to_string(member));
}

std::vector<Tensors> expected_of(std::size_t members, const Together& together) {
  const Tensors inputs = inputs_of(members);
  const Tensors outputs = together(inputs);
  Tensor loss = at::zeros({}, at::kDouble);
  for (std::size_t i = 0; i < members; ++i)
    loss = loss + loss_of(i, outputs[i]);
  return derivatives(inputs, loss);
}

void require_collective(
    int world, const std::function<Tensor(const Tensor&, const parallel::ProcessGroup&)>& local,
    const Together& together) {
  run_ranks(world, [&](RankContext& context) -> std::string {
    const auto rank = static_cast<std::size_t>(context.rank);
    const Tensor input = input_of(rank);
    const Tensor output = local(input, context.group);
    const auto members = static_cast<std::size_t>(context.world);
    require(at::allclose(output, together(inputs_of(members))[rank], 0, 1e-15), "the value");
    require_same(derivatives({input}, loss_of(rank, output)), expected_of(members, together), rank);
    return "";
  });
}

Tensors same_for_all(const Tensors& inputs, const Tensor& output) {
  return Tensors(inputs.size(), output);
}

TEST(Collectives, AllReduceSum) {
  for (const int world : {1, 2, 3}) {
    require_collective(world, parallel::all_reduce_sum, [](const Tensors& inputs) {
      return same_for_all(inputs, at::stack(inputs).sum(0));
    });
  }
}

TEST(Collectives, AllGather) {
  require_collective(3, parallel::all_gather,
                     [](const Tensors& inputs) { return same_for_all(inputs, at::stack(inputs)); });
}

TEST(Collectives, LeaveTheCallersTensorAlone) {
  run_ranks(2, [](RankContext& context) -> std::string {
    const Tensor transposed = at::arange(6, at::kDouble).reshape({2, 3}).t() + context.rank;
    const Tensor before = transposed.clone();
    const Tensor sum = parallel::all_reduce_sum(transposed, context.group);
    require(transposed.equal(before), "the input as it was");
    require(sum.equal(before * 2 + (context.rank == 0 ? 1 : -1)), "elements in their places");
    return "";
  });
}

// Runs `body` for every replica in a thread of its own; returns what each raised, "" for nothing.
std::vector<std::string> in_threads(
    std::size_t replicas, const std::function<void(std::size_t, StatisticsExchange&)>& body) {
  ReplicaExchange exchange(static_cast<std::int64_t>(replicas));
  std::vector<std::string> raised(replicas);
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < replicas; ++i) {
    threads.emplace_back([&, i] {
      try {
        const ReplicaExchange::Presence presence(exchange, static_cast<std::int64_t>(i));
        body(i, *exchange.member(static_cast<std::int64_t>(i)));
      } catch (const std::exception& error) {
        raised[i] = error.what();
      }
    });
  }
  for (std::thread& thread : threads)
    thread.join();
  return raised;
}

// One backward, in one thread, through the graphs that all replicas built.
TEST(ReplicaExchange, IsDifferentiableThroughAllReplicasAtOnce) {
  const Together together = [](const Tensors& inputs) {
    return same_for_all(inputs, at::stack(inputs).sum(0));
  };
  const Tensors inputs = inputs_of(3);
  Tensors losses(3);
  for (const std::string& raised : in_threads(3, [&](std::size_t i, StatisticsExchange&exchange) {
         losses[i] = loss_of(i, exchange.all_reduce_sum(inputs[i]));
       }))
    EXPECT_EQ(raised, "");
  const auto orders = derivatives(inputs, losses[0] + losses[1] + losses[2]);
  const auto expected = expected_of(3, together);
  for (std::size_t order = 1; order < orders.size(); ++order) {
    for (std::size_t i = 0; i < 3; ++i)
      EXPECT_TRUE(at::allclose(orders[order][i], expected[order][i], 1e-12, 1e-12));
  }
}

TEST(ReplicaExchange, KeepsManyMeetingsApart) {
  const auto raised = in_threads(4, [](std::size_t i, StatisticsExchange& exchange) {
    const Tensor own = at::full({1}, static_cast<double>(i), at::kDouble);
    for (int round = 0; round < 200; ++round) {
      const Tensor rows = exchange.all_gather(own + 10 * round);
      require(rows.flatten().equal(at::arange(4, at::kDouble) + 10 * round), "rows of this round");
    }
  });
  EXPECT_EQ(raised, std::vector<std::string>(4));
}

TEST(ReplicaExchange, AReplicaThatThrowsEndsTheWaitOfTheOthers) {
  const auto raised = in_threads(3, [](std::size_t i, StatisticsExchange& exchange) {
    exchange.all_gather(at::ones({1}));
    if (i == 1)
      throw std::runtime_error("the cause");
    exchange.all_gather(at::ones({1}));
  });
  EXPECT_EQ(raised[1], "the cause");
  EXPECT_NE(raised[0].find("replica 1 ended before exchange 2"), std::string::npos) << raised[0];
  EXPECT_NE(raised[2].find("replica 1 ended before exchange 2"), std::string::npos) << raised[2];
}

TEST(ReplicaExchange, AReplicaThatReturnsEarlyEndsTheWaitOfTheOthers) {
  const auto raised = in_threads(3, [](std::size_t i, StatisticsExchange& exchange) {
    if (i != 0)
      exchange.all_gather(at::ones({1}));
  });
  EXPECT_EQ(raised[0], "");
  EXPECT_NE(raised[1].find("replica 0 ended before exchange 1"), std::string::npos) << raised[1];
}

TEST(ReplicaExchange, WhatCannotBePutTogetherIsAnErrorOfTheLastReplica) {
  auto raised = in_threads(2, [](std::size_t i, StatisticsExchange& exchange) {
    exchange.all_gather(at::ones({static_cast<std::int64_t>(i) + 1}));
  });
  if (raised[0].find("stack expects each tensor to be equal size") == std::string::npos)
    std::swap(raised[0], raised[1]);
  EXPECT_NE(raised[0].find("stack expects each tensor to be equal size"), std::string::npos);
  EXPECT_NE(raised[1].find("ended before exchange 1"), std::string::npos) << raised[1];
}

}  // namespace
}  // namespace lockstep::test
