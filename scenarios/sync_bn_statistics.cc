#include "scenarios/sync_bn_statistics.h"

#include <algorithm>
#include <cmath>

#include "scenarios/steps.h"
#include "scenarios/subject_cells.h"

namespace lockstep {
namespace {

constexpr std::int64_t kTrainingSteps = 2;  // The second begins with running values of the first.

std::vector<std::int64_t> rows_of(const Case& cell, std::int64_t step) {
  constexpr std::int64_t kUneven[] = {3, 5, 7, 49, 2};
  constexpr std::int64_t kEmpty[] = {5, 3, 0, 1, 0};
  const bool empty = cell.option("rows") == "empty";
  if (cell.option("rows") == "even")
    return std::vector<std::int64_t>(static_cast<std::size_t>(cell.world_size), 8);
  std::vector<std::int64_t> rows;
  if (cell.option("rows") == "none" && step == 1)
    return std::vector<std::int64_t>(static_cast<std::size_t>(cell.world_size), 0);
  for (std::int64_t rank = 0; rank < cell.world_size; ++rank) {
    // Other ranks have other numbers in the next step.
    const std::int64_t place = (rank + step) % cell.world_size;
    rows.push_back(empty ? kEmpty[place] : kUneven[place]);
  }
  return rows;
}

StepPlan step_of(const Case& cell, std::int64_t step) {
  StepPlan plan;
  plan.step = step;
  plan.rows = rows_of(cell, step);
  // A rank without rows has no mean of its losses.
  plan.loss = cell.option("rows").empty() || cell.option("rows") == "even" ? "mean" : "sum";
  // Values are uniform in [-1, 1): their deviation is 1 / sqrt(3). Ranks have means of their own.
  const double deviation = 1 / std::sqrt(3.0);
  for (std::int32_t rank = 0; rank < cell.world_size; ++rank)
    plan.offsets.push_back(deviation * (std::stod(cell.option("ratio", "0")) + rank));
  return plan;
}

bool keeps_running_values(const Case& cell) { return cell.option("model") != "bn_stateless"; }

Case cell_of(const std::string& implementation, std::int32_t world, const std::string& dtype,
             std::map<std::string, std::string> options) {
  Case cell{.scenario = "sync-bn-statistics",
            .implementation = implementation,
            .world_size = world,
            .dtype = dtype};
  cell.options = std::move(options);
  // Nobody's buffers are broadcast: that they are equal is the statistics' doing.
  cell.options.insert(
      {{"sync_bn", "on"}, {"broadcast_buffers", "off"}, {"broadcast_initial_buffers", "on"}});
  const std::string model = cell.option("model");
  cell.expected_marks = {cell.option("rows") == "empty" ? "a-rank-is-empty" : "rows-differ"};
  if (model == "bn_rows" || model == "bn_sequence" || model == "bn_input")
    cell.expected_marks.emplace_back("one-dimension-is-supported");
  cell.expected_marks.emplace_back("evaluated");
  cell.required_checks = {"batch-statistics",   "collective-order", "deadlock",
                          "gradient-reference", "process-end",      "replica-equality"};
  // No mistake about statistics shows in running values that are to stay as they are.
  if (model == "bn_constant")
    std::erase(cell.required_checks, "batch-statistics");
  cell.required = dtype == "float64";
  cell.id = case_id(cell);
  return cell;
}

// What the observed shapes of the normalised values say really happened.
Result<void> mark_what_happened(Conversation& talk) {
  std::vector<std::int64_t> rows;
  std::size_t dimensions = 0;
  for (const Observation& seen : talk.observations()) {
    if (seen.role != Role::kRank || seen.step != 0 || seen.name != "norm/bn" || seen.shape.empty())
      continue;
    rows.push_back(seen.shape.front());
    dimensions = seen.shape.size();
  }
  if (rows.empty())
    return {};
  const auto [least, most] = std::minmax_element(rows.begin(), rows.end());
  if (*least == 0) {
    if (auto marked = talk.mark("a-rank-is-empty"); !marked)
      return marked;
  }
  if (*least != *most) {
    if (auto marked = talk.mark("rows-differ"); !marked)
      return marked;
  }
  // Articles say that BatchNorm1d cannot be synchronised. It can, with a length and without.
  if (dimensions == 2 || dimensions == 3)
    return talk.mark("one-dimension-is-supported");
  return {};
}

}  // namespace

std::string_view SyncBnStatistics::question() const {
  return "is batch normalisation over all ranks' rows that of one process, in training and after?";
}

std::vector<Case> SyncBnStatistics::cells() const {
  std::vector<Case> cells;
  const auto add = [&](std::int32_t world, const std::string& dtype,
                       const std::map<std::string, std::string>& options) {
    cells.push_back(cell_of("ddp", world, dtype, options));
  };
  for (const std::int32_t world : {2, 3, 5}) {
    for (const char* model : {"bn_rows", "bn_sequence", "conv_bn", "bn_cumulative"})
      add(world, "float64", {{"model", model}});
    if (world > 2)  // With two, one would have all rows: nothing to synchronise.
      add(world, "float64", {{"model", "bn_rows"}, {"rows", "empty"}});
    add(world, "float64", {{"model", "bn_sequence"}, {"ratio", "1000"}, {"rule", "cancelling"}});
  }
  add(3, "float64", {{"model", "bn_rows"}, {"ratio", "10"}});
  add(3, "float64", {{"model", "bn_volume"}, {"sync_bn", "converted"}});
  add(3, "float64", {{"model", "bn_rows"}, {"sync_bn", "converted"}});
  for (const char* model : {"bn_cumulative", "bn_constant", "bn_frozen", "bn_bias"})
    add(2, "float64", {{"model", model}, {"sync_bn", "converted"}});
  add(3, "float64", {{"model", "bn_rows"}, {"rows", "none"}});
  add(3, "float64", {{"model", "bn_volume"}, {"rows", "empty"}});
  for (const char* model : {"bn_plain", "bn_stateless"})
    add(3, "float64", {{"model", model}});
  add(3, "float32", {{"model", "bn_sequence"}});
  for (const char* ratio : {"10", "1000"})
    add(3, "float32", {{"model", "bn_sequence"}, {"ratio", ratio}});
  for (const char* ratio : {"0", "3"})
    add(3, "bfloat16", {{"model", "bn_sequence"}, {"ratio", ratio}});
  // Statistics in half precision are off by a fifth of a deviation.
  add(3, "bfloat16", {{"model", "bn_input"}, {"ratio", "100"}});
  for (const std::int32_t world : {2, 3, 5})
    cells.push_back(cell_of("bucketed_ddp", world, "float64",
                            {{"model", "conv_bn"}, {"sync_bn", "converted"}}));
  return cells;
}

std::vector<std::pair<std::string, std::string>> SyncBnStatistics::not_applicable() const {
  const char* const why =
      "what the layers of its replicas give is not seen; gradient-penalty judges their SyncBN";
  return {{"dp", why}, {"balanced_dp", why}};
}

namespace {

// In float64, unless it takes nothing wider than float32.
Case norm_cell(std::int32_t world, const std::map<std::string, std::string>& options,
               const Subject& subject) {
  const bool narrow = subject.lacks.count("float64") > 0;
  Case cell = cell_of("ddp", world, narrow ? "float32" : "float64", options);
  cell.required = true;
  for (const char* of_wrapper : {"sync_bn", "broadcast_buffers", "broadcast_initial_buffers"})
    cell.options.erase(of_wrapper);
  cell.expected_marks = {"evaluated"};
  if (cell.option("rows") != "even")
    cell.expected_marks.emplace_back("rows-differ");
  return subject_cell(std::move(cell), subject);
}

}  // namespace

std::vector<Case> SyncBnStatistics::cells(const Subject& subject) const {
  std::vector<Case> cells;
  if (subject.kind != "sync_bn")
    return cells;
  const auto tried = [&](const std::map<std::string, std::string>& options,
                         const std::string& why) {
    cells.push_back(tried_cell(norm_cell(3, options, subject), subject, why));
    if (cells.back().option("rows") == "empty")
      cells.back().expected_marks = {"a-rank-is-empty", "evaluated"};
  };
  const auto equal = subject.lacks.find("uneven_rows");
  for (const char* model : {"conv_bn", "bn_rows", "bn_sequence", "bn_volume"}) {
    for (const std::int32_t world : {2, 3, 5})
      cells.push_back(norm_cell(world, {{"model", model}, {"rows", "even"}}, subject));
    for (const std::int32_t world : {2, 3}) {
      cells.push_back(norm_cell(world, {{"model", model}}, subject));
      if (equal != subject.lacks.end() && cells.back().not_declared.empty())
        cells.back().not_declared = "ranks with different numbers of rows: " + equal->second;
    }
  }
  for (const char* model : {"bn_plain", "bn_stateless"})
    cells.push_back(norm_cell(3, {{"model", model}, {"rows", "even"}}, subject));
  tried({{"model", "bn_cumulative"}, {"rows", "even"}}, "a momentum of None");
  tried({{"model", "bn_rows"}, {"rows", "empty"}}, "a rank without rows");
  tried({{"model", "bn_sequence"}, {"ratio", "1000"}, {"rule", "cancelling"}, {"rows", "even"}},
        "values whose mean is a thousand deviations");
  return cells;
}

Result<void> SyncBnStatistics::converse(Conversation& talk, const Case& cell) const {
  Result<Training> training = begin(talk, cell.option("model", "bn_rows"));
  if (!training)
    return training.error();
  const std::int64_t training_steps = cell.option("rows") == "none" ? 3 : kTrainingSteps;
  for (std::int64_t step = 0; step <= training_steps; ++step) {
    StepPlan plan = step_of(cell, step);
    plan.train = step < training_steps;
    // Without running values a rank evaluates with the statistics of its own rows.
    plan.alone = !plan.train && !keeps_running_values(cell);
    plan.grad = !plan.alone;
    if (auto computed = reference_step(talk, *training, plan); !computed)
      return computed;
    if (auto trained = train_step(talk, *training, plan); !trained)
      return trained;
    if (!plan.train) {
      if (auto marked = talk.mark("evaluated"); !marked)
        return marked;
    }
  }
  if (auto marked = mark_what_happened(talk); !marked)
    return marked;
  return talk.bye();
}

}  // namespace lockstep
