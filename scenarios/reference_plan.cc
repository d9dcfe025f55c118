#include "scenarios/reference_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "scenarios/batches.h"

namespace lockstep {
namespace {

using protocol::Json;

bool declares(const Training& training, const char* what, const char* value) {
  const auto at = training.contract.find(what);
  return at != training.contract.end() && at->second == value;
}

// Indices of a shard's rows in its rank's batch; null for all of them in their order.
Json rows_of(const Shard& shard, const StepPlan& plan, std::uint64_t permutation) {
  if (permutation == 0 && shard.rows == plan.rows[static_cast<std::size_t>(shard.rank.value)])
    return nullptr;
  std::vector<std::int64_t> order(static_cast<std::size_t>(shard.rows));
  std::iota(order.begin(), order.end(), shard.first);
  if (permutation == 0)
    return order;
  Draw draw(permutation);
  for (std::size_t i = order.size(); i > 1; --i)
    std::swap(order[i - 1],
              order[static_cast<std::size_t>(draw.integer(0, static_cast<std::int64_t>(i) - 1))]);
  return order;
}

double divisor_of(const StepPlan& plan, const std::vector<Shard>& shards) {
  return plan.divide_by > 0 ? plan.divide_by : static_cast<double>(shards.size());
}

// Of each row of each shard, as the contract weighs it.
std::vector<double> right_weights(const Training& training, const StepPlan& plan,
                                  const std::vector<Shard>& shards) {
  double total_rows = 0;
  for (const Shard& shard : shards)
    total_rows += static_cast<double>(shard.rows);
  const double count = declares(training, "gradient", "sum") ? 1 : divisor_of(plan, shards);
  const bool of_means = !declares(training, "gradient", "global_sample_mean");
  std::vector<double> weights;
  for (const Shard& shard : shards) {
    if (plan.loss == "sum")
      weights.push_back(of_means ? 1.0 / count : 1.0);
    else if (of_means)
      weights.push_back(shard.rows == 0 ? 0.0 : 1.0 / static_cast<double>(shard.rows) / count);
    else
      weights.push_back(1.0 / total_rows);
  }
  return weights;
}

std::vector<double> scaled(std::vector<double> weights, double factor) {
  for (double& weight : weights)
    weight *= factor;
  return weights;
}

// Of each rank its own.
std::vector<Weighing> each_alone(const StepPlan& plan, const std::vector<Shard>& shards) {
  std::vector<Weighing> all;
  for (std::size_t s = 0; s < shards.size(); ++s) {
    Weighing own{.variant = "",
                 .weight = std::vector<double>(shards.size(), 0.0),
                 .only_for = shards[s].rank,
                 .only_shards = {s}};
    own.weight[s] = plan.loss == "sum" ? 1.0 : 1.0 / static_cast<double>(shards[s].rows);
    all.push_back(std::move(own));
  }
  return all;
}

bool equal_rows(const std::vector<Shard>& shards) {
  return std::all_of(shards.begin(), shards.end(),
                     [&](const Shard& shard) { return shard.rows == shards.front().rows; });
}

}  // namespace

std::vector<Shard> shards_of(const Case& cell, const StepPlan& plan) {
  std::vector<Shard> shards;
  const std::int64_t replicas = std::stoll(cell.option("replicas", "0"));
  if (replicas == 0) {
    for (std::size_t r = 0; r < plan.rows.size(); ++r) {
      const Rank rank{static_cast<std::int32_t>(r)};
      if (plan.live.empty() || plan.live.contains(rank))
        shards.push_back({rank, 0, plan.rows[r]});
    }
    return shards;
  }
  const std::int64_t rows = plan.rows.front();
  const std::int64_t chunk = (rows + replicas - 1) / replicas;
  for (std::int64_t first = 0; first < rows; first += chunk)
    shards.push_back({Rank{0}, first, std::min(chunk, rows - first)});
  return shards;
}

std::vector<Weighing> weighings(const Case& cell, const Training& training, const StepPlan& plan) {
  const std::vector<Shard> shards = shards_of(cell, plan);
  if (plan.alone)
    return each_alone(plan, shards);
  const double count = divisor_of(plan, shards);
  const std::vector<double> right = right_weights(training, plan, shards);
  const auto world = static_cast<double>(cell.world_size);
  const bool of_means = !declares(training, "gradient", "global_sample_mean");
  std::vector<Weighing> all{{.variant = "", .weight = right}};
  const auto add = [&](const char* variant, std::vector<double> weights) {
    if (weights != right)  // One rank alone cannot be summed wrongly.
      all.push_back({.variant = variant, .weight = std::move(weights)});
  };
  if (count == 1)
    add("doubled", scaled(right, 2));
  const bool summed = declares(training, "gradient", "sum");
  if (count > 1)
    add(summed ? "mean" : "sum", scaled(right, summed ? 1 / count : count));
  if (count > 1 && !summed)
    add("divisor_w_minus_1", scaled(right, count / (count - 1)));
  if (shards.size() > 1) {
    std::vector<double> dropped = right;
    dropped.back() = 0.0;
    add("dropped_rank", dropped);
  }
  if (const auto live = static_cast<double>(shards.size()); !plan.live.empty() && live < world)
    add("other_world", scaled(right, count / (count == live ? world : live)));
  if (plan.loss == "mean" && !equal_rows(shards)) {
    Training other = training;  // The mean that was not declared.
    other.contract["gradient"] = of_means ? "global_sample_mean" : "mean_of_rank_means";
    add(of_means ? "global_sample_mean" : "mean_of_rank_means", right_weights(other, plan, shards));
  }
  for (std::size_t s = 0; s < shards.size() && cell.world_size > 1; ++s) {
    Weighing local{.variant = "local",
                   .weight = std::vector<double>(shards.size(), 0.0),
                   .only_for = shards[s].rank};
    local.weight[s] = right[s] * count;
    if (local.weight != right)
      all.push_back(local);
  }
  // Batch statistics that miss some of the rows.
  std::vector<std::size_t> with_rows;
  for (std::size_t s = 0; s < shards.size(); ++s) {
    if (shards[s].rows > 0)
      with_rows.push_back(s);
  }
  if (declares(training, "statistics", "global") && with_rows.size() > 1) {
    all.push_back(
        {.variant = "statistics/one_rank", .weight = right, .only_shards = {with_rows.front()}});
    with_rows.pop_back();
    all.push_back(
        {.variant = "statistics/dropped_rank", .weight = right, .only_shards = with_rows});
  }
  if (plan.penalty) {
    all.push_back({.variant = "penalty_detached", .weight = right, .penalty_factor = 0});
    all.push_back({.variant = "penalty_doubled", .weight = right, .penalty_factor = 2});
  }
  // What is narrower than float64 is compared with runs of its own type, too.
  if (cell.dtype != "float64" || training.model == "mixed") {
    for (std::uint64_t p = 0; p < 4; ++p)
      all.push_back({.variant = fmt::format("x1/{}", p),
                     .weight = right,
                     .dtype = cell.dtype,
                     .permutation = p * 1000,
                     .widen = false});
  }
  return all;
}

Json forwards_of(const Case& cell, const Training& training, const StepPlan& plan,
                 const Weighing& how,
                 const std::function<std::string(Rank rank, std::int64_t micro)>& batch_file) {
  const std::vector<Shard> shards = shards_of(cell, plan);
  const bool from_rank0 = declares(training, "buffers", "rank0") && !plan.buffers_unsynced;
  const std::size_t authority =
      plan.live.empty() ? 0 : static_cast<std::size_t>(std::prev(plan.live.end())->value);
  const bool together = declares(training, "statistics", "global");
  const auto part_of = [&](std::size_t s, std::int64_t micro) {
    const Shard& shard = shards[s];
    return Json{{"batch", batch_file(shard.rank, micro)},
                {"rank", shard.rank.value},
                {"rows", rows_of(shard, plan, how.permutation ? how.permutation + s : 0)},
                {"weights", {how.weight[s]}}};
  };
  // Forwards of one round: one for each shard, or one for all that share their batch statistics.
  const std::size_t in_round = together || plan.alone ? 1 : shards.size();
  Json forwards = Json::array();
  for (std::int64_t forward = 0; forward < plan.forwards; ++forward) {
    for (std::size_t s = 0; s < in_round; ++s) {
      const std::size_t own = plan.alone ? how.only_shards.front() : s;
      const std::size_t source = (from_rank0 || together) && !plan.alone
                                     ? authority
                                     : static_cast<std::size_t>(shards[own].rank.value);
      for (std::int64_t micro = 0; micro < plan.micro_batches; ++micro) {
        Json one{{"parts", Json::array()}, {"buffers", training.state[source].string()}};
        for (std::size_t part = s; part < (in_round == 1 ? shards.size() : s + 1); ++part)
          if (how.only_shards.empty() ||
              std::count(how.only_shards.begin(), how.only_shards.end(), part) > 0)
            one["parts"].push_back(part_of(part, micro));
        // A later forward begins with the buffers that an earlier one left.
        if (forward > 0) {
          const auto before = (forward - 1) * static_cast<std::int64_t>(in_round) +
                              static_cast<std::int64_t>(source);
          one["buffers_after"] = before * plan.micro_batches + micro;
        }
        forwards.push_back(std::move(one));
      }
    }
  }
  return forwards;
}

}  // namespace lockstep
