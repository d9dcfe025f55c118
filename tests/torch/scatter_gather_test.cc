// Scatter, gather, broadcast and reduce between the replicas of one process: what goes where, and
// derivatives to the second order by finite differences. Tests named in quotes are PyTorch's own.

#include "fixtures/implementations/scatter_gather.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "fixtures/implementations/parallel_apply.h"
#include "fixtures/implementations/statistics_exchange.h"
#include "tests/torch/finite_differences.h"

namespace lockstep::test {
namespace {

using at::Tensor;
using c10::IValue;
using parallel::Arguments;
using parallel::Devices;

std::vector<std::int64_t> rows_of(const std::vector<Arguments>& scattered) {
  std::vector<std::int64_t> rows;
  for (const Arguments& arguments : scattered)
    rows.push_back(arguments.front().toTensor().size(0));
  return rows;
}

// What of a c10::Error its author wrote.
template <class Call>
std::string error_of(const Call& call) {
  try {
    call();
  } catch (const c10::Error& error) {
    return error.msg();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "no error";
}

TEST(Scatter, SplitsAsTensorChunkDoes) {
  using Rows = std::vector<std::int64_t>;
  const auto rows = [](std::int64_t batch, std::size_t devices) {
    return rows_of(parallel::scatter({values({batch, 2})}, cpus(devices)));
  };
  EXPECT_EQ(rows(5, 2), (Rows{3, 2}));
  EXPECT_EQ(rows(5, 4), (Rows{2, 2, 1}));  // Three parts on four devices: chunk does not balance.
  EXPECT_EQ(rows(2, 5), (Rows{1, 1}));
  EXPECT_EQ(rows(1, 3), (Rows{1}));
  EXPECT_EQ(rows(0, 2), (Rows{0, 0}));
  for (std::int64_t batch = 0; batch < 12; ++batch) {
    for (std::size_t devices = 1; devices < 7; ++devices) {
      Rows expected;
      for (const Tensor& part : at::chunk(values({batch, 2}), static_cast<std::int64_t>(devices)))
        expected.push_back(part.size(0));
      EXPECT_EQ(rows(batch, devices), expected) << batch << " rows on " << devices;
    }
  }
}

TEST(Scatter, HandsWhatCannotBeSplitWholeToEveryReplica) {
  const Tensor scalar = at::full({}, 2.5, at::kDouble);
  c10::Dict<std::string, Tensor> dict;
  dict.insert("x", values({4, 1}));
  const auto parts = parallel::scatter(
      {values({4, 2}), 7, "text", scalar, IValue(), c10::ivalue::Tuple::create({values({4}), 3}),
       dict, c10::List<Tensor>({values({4, 3})}), c10::List<std::int64_t>()},
      cpus(2));
  ASSERT_EQ(parts.size(), 2U);
  for (std::size_t i = 0; i < 2; ++i) {
    const auto row = static_cast<std::int64_t>(2 * i);
    EXPECT_TRUE(at::equal(parts[i][0].toTensor(), values({4, 2}).slice(0, row, row + 2)));
    EXPECT_EQ(parts[i][1].toInt(), 7);
    EXPECT_EQ(parts[i][2].toStringRef(), "text");
    EXPECT_EQ(parts[i][3].toTensor().item<double>(), 2.5);
    EXPECT_TRUE(parts[i][4].isNone());
    EXPECT_EQ(parts[i][5].toTupleRef().elements()[0].toTensor().size(0), 2);
    EXPECT_EQ(parts[i][5].toTupleRef().elements()[1].toInt(), 3);
    EXPECT_EQ(parts[i][6].toGenericDict().at("x").toTensor().size(0), 2);
    EXPECT_EQ(parts[i][7].toListRef()[0].toTensor().size(0), 2);
    EXPECT_EQ(parts[i][8].toListRef().size(), 0U);
  }
  EXPECT_EQ(parallel::scatter({7}, cpus(3)).size(), 3U);  // Nothing to split: every device.
}

TEST(Scatter, TensorsThatGiveDifferentNumbersOfPartsAreRefused) {
  const std::string said = error_of([] {
    parallel::scatter({values({5, 1}), values({2, 1})}, cpus(4));
  });
  EXPECT_NE(said.find("of 2 rows gives 2 parts on 4 devices, another of 5 rows gives 3"),
            std::string::npos)
      << said;
}

TEST(Gather, PutsPartsTogetherInTheirOrder) {
  const Tensor whole = values({5, 3});
  const Tensor first = whole.slice(0, 0, 3);
  const Tensor second = whole.slice(0, 3);
  EXPECT_TRUE(at::equal(parallel::gather({first, second}, at::kCPU).toTensor(), whole));
  // "test_gather": outputs without dimensions become a vector.
  const Tensor scalars =
      parallel::gather({at::full({}, 1.0), at::full({}, 2.0)}, at::kCPU).toTensor();
  EXPECT_TRUE(at::equal(scalars, at::tensor({1.0F, 2.0F})));
  const auto nested = [&](const Tensor& part) {
    c10::Dict<std::string, Tensor> dict;
    dict.insert("x", part);
    return c10::ivalue::Tuple::create({part, c10::List<Tensor>({part}), dict, IValue()});
  };
  const IValue gathered = parallel::gather({nested(first), nested(second)}, at::kCPU);
  const auto& elements = gathered.toTupleRef().elements();
  EXPECT_TRUE(at::equal(elements[0].toTensor(), whole));
  EXPECT_TRUE(at::equal(elements[1].toListRef()[0].toTensor(), whole));
  EXPECT_TRUE(at::equal(elements[2].toGenericDict().at("x").toTensor(), whole));
  EXPECT_TRUE(elements[3].isNone());
}

TEST(Gather, WhatCannotBecomeOneValueIsRefused) {
  EXPECT_NE(error_of([] {
              parallel::gather({1, 2}, at::kCPU);
            }).find("cannot become one"),
            std::string::npos);
  EXPECT_NE(error_of([] {
              parallel::gather({values({2}), IValue()}, at::kCPU);
            }).find("another a None"),
            std::string::npos);
  // "test_gather_different_len_dicts".
  c10::Dict<std::string, Tensor> one, two;
  one.insert("a", values({1}));
  two.insert("a", values({1}));
  two.insert("b", values({1}));
  EXPECT_NE(error_of([&] {
              parallel::gather({one, two}, at::kCPU);
            }).find("gives 1 elements, another 2"),
            std::string::npos);
}

// "_test_scatter", "_test_gather", "test_broadcast_double_backwards_gpu" with gradgradcheck.
TEST(ScatterGather, AreDifferentiableTwice) {
  const Differentiable scattered = [](const Inputs& x) {
    Inputs parts;
    for (const Arguments& part : parallel::scatter({x[0]}, cpus(2)))
      parts.push_back(part.front().toTensor());
    return parts;
  };
  const Differentiable gathered = [](const Inputs& x) -> Inputs {
    return {parallel::gather({x[0], x[1]}, at::kCPU).toTensor()};
  };
  const Differentiable copied = [](const Inputs& x) {
    Inputs all;
    for (const Inputs& of_device : parallel::broadcast(x, cpus(3)))
      all.insert(all.end(), of_device.begin(), of_device.end());
    return all;
  };
  const Differentiable reduced = [](const Inputs& x) -> Inputs {
    return {parallel::reduce(x, at::kCPU)};
  };
  for (const auto& function : {scattered, gathered, copied, reduced}) {
    const Inputs at{values({5, 4}), values({5, 4}, 0.3)};
    expect_gradient(function, at);
    expect_second_gradient(function, at);
  }
}

// LibTorch's replicate has a ReduceAdd here that raises: "can only be used during the backward
// pass".
TEST(Broadcast, GradientsOfParametersAreDifferentiable) {
  const Tensor weight = leaf(values({3}));
  const auto copies = parallel::broadcast({weight}, cpus(2));
  const Tensor loss = (copies[0][0].pow(3) + 2 * copies[1][0].pow(2)).sum();
  const Tensor gradient = torch::autograd::grad({loss}, {weight}, {}, std::nullopt, true)[0];
  EXPECT_TRUE(at::allclose(gradient, 3 * weight.pow(2) + 4 * weight));
  const Tensor second = torch::autograd::grad({gradient.sum()}, {weight})[0];
  EXPECT_TRUE(at::allclose(second, 6 * weight + 4));
}

TEST(Broadcast, CopiesAreReplicasOwnAndConstantsStayConstant) {
  const Tensor weight = leaf(values({3}));
  const Tensor frozen = values({2}, 0.5);
  const auto copies = parallel::broadcast({weight, frozen}, cpus(2));
  EXPECT_TRUE(copies[0][0].is_alias_of(weight));
  EXPECT_FALSE(copies[1][0].is_alias_of(weight));
  EXPECT_FALSE(copies[0][1].requires_grad());
  EXPECT_FALSE(copies[1][1].requires_grad());
  EXPECT_TRUE(at::equal(copies[1][1], frozen));
}

TEST(Reduce, AddsAndRefusesOtherShapes) {
  EXPECT_TRUE(at::equal(parallel::reduce({values({2}), values({2})}, at::kCPU), values({2}) * 2));
  EXPECT_NE(error_of([] {
              parallel::reduce({values({2}), values({3})}, at::kCPU);
            }).find("one tensor has shape [2], another [3]"),
            std::string::npos);
}

// "test_parallel_apply", "test_parallel_apply_autocast": grad mode and the like are the caller's.
TEST(ParallelApply, CarriesTheCallersState) {
  for (const bool enabled : {true, false}) {
    const at::AutoGradMode mode(enabled);
    std::atomic<int> alike = 0;
    std::vector<std::thread::id> threads(3);
    parallel::parallel_apply(cpus(3), [&](std::size_t i) {
      threads[i] = std::this_thread::get_id();
      if (at::GradMode::is_enabled() == enabled && parallel::current_replica() == i)
        ++alike;
    });
    EXPECT_EQ(alike, 3);
    EXPECT_NE(threads[0], threads[1]);
    EXPECT_NE(threads[1], threads[2]);
  }
  EXPECT_FALSE(parallel::current_replica().has_value());
}

// "test_parallel_apply_passes_exception".
TEST(ParallelApply, RaisesWithReplicaDeviceAndCause) {
  std::atomic<int> ran = 0;
  try {
    parallel::parallel_apply(cpus(3), [&](std::size_t i) {
      ++ran;
      if (i > 0)
        throw std::out_of_range("no row " + std::to_string(i));
    });
    FAIL() << "no error";
  } catch (const parallel::ReplicaError& error) {
    EXPECT_EQ(error.replica(), 1U);
    EXPECT_TRUE(error.device().is_cpu());
    EXPECT_STREQ(error.what(), "replica 1 on cpu: no row 1");
    EXPECT_THROW(std::rethrow_if_nested(error), std::out_of_range);
  }
  EXPECT_EQ(ran, 3);
}

// Every replica's statistics over all replicas' rows, as synchronised batch normalisation takes
// them.
Inputs normalised_over_all(const Inputs& parts) {
  parallel::ReplicaExchange exchange(static_cast<std::int64_t>(parts.size()));
  std::int64_t rows = 0;
  for (const Tensor& part : parts)
    rows += part.size(0);
  Inputs result(parts.size());
  parallel::parallel_apply(
      cpus(parts.size()),
      [&](std::size_t i) {
        const auto member = exchange.member(static_cast<std::int64_t>(i));
        const Tensor mean = member->all_reduce_sum(parts[i].sum(0)) / rows;
        const Tensor square = member->all_reduce_sum((parts[i] - mean).square().sum(0)) / rows;
        result[i] = (parts[i] - mean) * at::rsqrt(square + 1e-5);
      },
      &exchange);
  return result;
}

TEST(ParallelApply, ReplicasThatMeetAreOneGraph) {
  const Inputs parts{values({3, 2}), values({2, 2}, 0.4), values({1, 2}, 0.9)};
  const Tensor whole = at::cat(parts);
  const Tensor deviation = whole - whole.mean(0);
  const Tensor expected = deviation * at::rsqrt(deviation.square().mean(0) + 1e-5);
  EXPECT_TRUE(at::allclose(at::cat(normalised_over_all(parts)), expected, 1e-12, 1e-14));
  expect_gradient(&normalised_over_all, parts);
  expect_second_gradient(&normalised_over_all, parts);
}

// The replica that raised is named, not one that waited for it.
TEST(ParallelApply, NobodyWaitsForAReplicaThatHasEnded) {
  parallel::ReplicaExchange exchange(3);
  EXPECT_EQ(error_of([&] {
              parallel::parallel_apply(
                  cpus(3),
                  [&](std::size_t i) {
                    if (i == 2)
                      throw std::runtime_error("the cause");
                    exchange.member(static_cast<std::int64_t>(i))->all_reduce_sum(values({1}));
                  },
                  &exchange);
            }),
            "replica 2 on cpu: the cause");
}

}  // namespace
}  // namespace lockstep::test
