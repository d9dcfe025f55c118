// What ranks hold before each step of an optimizer, row by row, as a watched run.
#pragma once

#include <memory>
#include <vector>

#include "harness/history/watched_values.h"
#include "tests/support/typed_run.h"

namespace lockstep::testing {

/// What one rank holds before a step: a value, the gradient given, the settings.
struct Held {
  double value{}, gradient{1};
  std::uint64_t settings{};
  std::uint32_t flags{};
  double rate{0.1};
};

inline history::WatchValue value_of(double x) {
  return {.digest = static_cast<std::uint64_t>(x * 1e6) + 1, .sums = {x, -x}, .norm = 1};
}

/// Row r is what rank r held, step by step; one all_reduce a step.
inline lockstep::Run watched(const std::vector<std::vector<Held>>& rows) {
  lockstep::Run run = make_run(std::vector<std::vector<Call>>(rows.size(), {all_reduce("dp", 8)}));
  run.plan.options["watch"] = "1 %";
  for (std::size_t rank = 0; rank < rows.size(); ++rank) {
    auto values = std::make_shared<WatchedValues>();
    values->on = true;
    values->tensors.push_back(
        {.name = "lin.weight", .reduced = true, .dtype = history::DType::kFloat32, .numel = 8});
    for (std::size_t step = 0; step < rows[rank].size(); ++step) {
      const Held& held = rows[rank][step];
      history::WatchEntry entry{};
      entry.flags = history::kValueSeen | history::kGradientSeen | held.flags;
      entry.value = value_of(held.value);
      entry.gradient = value_of(held.gradient);
      entry.settings = held.settings;
      entry.learning_rate = held.rate;
      values->points.push_back({.at_ns = kStart + step * kMs,
                                .position = step + 1,
                                .step = step + 1,
                                .entries = {entry}});
    }
    values->steps = values->watched = rows[rank].size();
    process_of(run, Rank{static_cast<std::int32_t>(rank)}).watched = std::move(values);
  }
  return run;
}

inline std::vector<Held> steady(std::size_t steps) { return std::vector<Held>(steps, Held{1}); }

}  // namespace lockstep::testing
