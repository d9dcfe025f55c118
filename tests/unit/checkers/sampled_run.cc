#include "tests/unit/checkers/sampled_run.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

namespace lockstep::testing {
namespace {

std::vector<double> widened(const Numbers& values) { return {values.begin(), values.end()}; }

std::string phase_of(std::int32_t number) { return fmt::format("dataset/{}", number); }

}  // namespace

lockstep::Run sampler_run(std::int32_t world, const std::map<std::string, std::string>& contract) {
  lockstep::Run run = make_run(std::vector<Row>(static_cast<std::size_t>(world)));
  run.plan.contract = {{"order", "shuffled"}, {"draws", "once"}, {"remainder", "pad"}};
  for (const auto& [name, value] : contract)
    run.plan.contract[name] = value;
  return run;
}

void see_dataset(lockstep::Run& run, std::int32_t number, const Items& items) {
  const auto see = [&](const char* name, const Numbers& values) {
    observe(run, std::nullopt, fmt::format("dataset/{}", name), 0, phase_of(number),
            widened(values), "", Role::kReference, "I64");
  };
  see("length", {items.length});
  see("batch_size", {items.batch_size});
  if (!items.boundaries.empty()) {
    see("item_lengths", items.item_lengths);
    see("boundaries", items.boundaries);
  }
  if (items.batches_max > 0)
    see("batches_max", {items.batches_max});
}

void see_shard(lockstep::Run& run, std::int32_t number, std::int64_t epoch, Rank rank,
               const Given& given) {
  const auto see = [&](const char* name, const Numbers& values) {
    observe(run, rank, fmt::format("sampler/{}", name), epoch, phase_of(number), widened(values),
            "", Role::kRank, "I64");
  };
  Numbers samples;
  Numbers sizes;
  for (const Numbers& batch : given.batches) {
    samples.insert(samples.end(), batch.begin(), batch.end());
    sizes.push_back(static_cast<std::int64_t>(batch.size()));
  }
  see("indices", samples);
  see("batch_sizes", sizes);
  if (run.plan.contract["length"] != "infinite")
    see("length", {given.promised < 0 ? static_cast<std::int64_t>(sizes.size()) : given.promised});
  if (!given.boundaries.empty())
    see("boundaries", given.boundaries);
}

Batches batched(const Numbers& samples, std::int64_t batch_size) {
  Batches batches;
  for (std::size_t i = 0; i < samples.size(); ++i) {
    if (i % static_cast<std::size_t>(batch_size) == 0)
      batches.emplace_back();
    batches.back().push_back(samples[i]);
  }
  return batches;
}

Numbers shuffled(std::int64_t length, std::uint64_t seed) {
  Numbers order(static_cast<std::size_t>(length));
  std::iota(order.begin(), order.end(), 0);
  std::mt19937_64 random(seed);
  for (std::size_t i = order.size(); i > 1; --i)
    std::swap(order[i - 1], order[random() % i]);
  return order;
}

Numbers dealt(Numbers order, std::int32_t world, std::int32_t rank, bool pad) {
  const auto step = static_cast<std::size_t>(world);
  const std::size_t length = order.size();
  while (pad && length > 0 && order.size() % step != 0)
    order.push_back(order[order.size() - length]);
  order.resize(order.size() - order.size() % step);
  Numbers share;
  for (auto i = static_cast<std::size_t>(rank); i < order.size(); i += step)
    share.push_back(order[i]);
  return share;
}

lockstep::Run one_dataset(std::int64_t length, const Epochs& epochs,
                          const std::map<std::string, std::string>& contract) {
  lockstep::Run run = sampler_run(static_cast<std::int32_t>(epochs.front().size()), contract);
  see_dataset(run, 0, {.length = length});
  for (std::size_t epoch = 0; epoch < epochs.size(); ++epoch) {
    for (std::size_t rank = 0; rank < epochs[epoch].size(); ++rank)
      see_shard(run, 0, static_cast<std::int64_t>(epoch), Rank{static_cast<std::int32_t>(rank)},
                {.batches = batched(epochs[epoch][rank])});
  }
  return run;
}

Epochs healthy_epochs(std::int64_t length, std::int32_t world, std::int64_t epochs, bool pad) {
  Epochs all;
  for (std::int64_t epoch = 0; epoch < epochs; ++epoch) {
    all.emplace_back();
    for (std::int32_t rank = 0; rank < world; ++rank)
      all.back().push_back(
          dealt(shuffled(length, 100 + static_cast<std::uint64_t>(epoch)), world, rank, pad));
  }
  return all;
}

Finding only_finding(const lockstep::Run& run) {
  const Verdict verdict = check(run);
  EXPECT_EQ(verdict.outcome, Outcome::kFail) << verdict.reason;
  if (verdict.findings.size() != 1) {
    ADD_FAILURE() << verdict.findings.size() << " findings";
    return {};
  }
  return verdict.findings.front();
}

void expect_pass(const lockstep::Run& run) {
  const Verdict verdict = check(run);
  EXPECT_EQ(verdict.outcome, Outcome::kPass)
      << verdict.reason << (verdict.findings.empty() ? "" : verdict.findings.front().headline);
}

}  // namespace lockstep::testing
