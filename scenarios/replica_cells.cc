#include "scenarios/replica_cells.h"

#include <algorithm>

namespace lockstep {
namespace {

Case cell_of(const char* scenario, const std::string& implementation, std::int64_t replicas,
             std::map<std::string, std::string> options) {
  Case cell{.scenario = scenario, .implementation = implementation, .world_size = 1};
  cell.options = std::move(options);
  cell.options["replicas"] = std::to_string(replicas);
  cell.required_checks = {"gradient-reference", "process-end"};
  return cell;
}

Case gradients(const std::string& implementation, std::int64_t replicas,
               std::map<std::string, std::string> options) {
  Case cell = cell_of("gradient-equivalence", implementation, replicas, std::move(options));
  cell.expected_marks = {"buckets-reduced"};
  if (implementation == "balanced_dp" && cell.option("rows") == "uneven")
    cell.required_checks.push_back("loss-weighting");
  if (cell.option("memory") == "on")
    cell.required_checks.push_back("replica-memory");
  if (!cell.option("argument").empty())
    cell.expected_marks.push_back("argument-whole");
  cell.id = case_id(cell);
  return cell;
}

}  // namespace

std::int64_t replicas_of(const Case& cell) { return std::stoll(cell.option("replicas", "0")); }

std::int64_t replica_rows(const Case& cell) {
  const std::int64_t replicas = replicas_of(cell);
  if (cell.option("rows") == "uneven")
    return 3 * replicas - 1;
  if (cell.option("rows") == "few")
    return std::max<std::int64_t>(replicas - 2, 1);
  if (cell.option("rows") == "one_more")  // Chunks of two: fewer parts than devices.
    return replicas + 1;
  return 3 * replicas;
}

std::vector<Case> replica_gradient_cells() {
  std::vector<Case> cells;
  for (const char* implementation : {"dp", "balanced_dp"}) {
    const auto add = [&](std::int64_t replicas, std::map<std::string, std::string> options) {
      cells.push_back(gradients(implementation, replicas, std::move(options)));
    };
    for (const std::int64_t replicas : {2, 3, 5}) {
      add(replicas, {{"model", "mlp"}, {"rows", "uneven"}});
      add(replicas, {{"model", "conv_bn"}});
    }
    add(3, {{"model", "mixed"}});
    add(5, {{"model", "conv_bn"}, {"rows", "one_more"}});
    add(5, {{"model", "conv_bn"}, {"rows", "few"}, {"sync_bn", "on"}});
    add(1, {{"model", "mlp"}});
    add(3, {{"model", "segmentation"}, {"memory", "on"}});
  }
  cells.push_back(gradients("dp", 3, {{"model", "mlp"}, {"argument", "whole"}}));
  for (const std::int64_t replicas : {2, 3, 5})
    cells.push_back(gradients("balanced_dp", replicas,
                              {{"model", "mlp"}, {"rows", "uneven"}, {"weighting", "samples"}}));
  return cells;
}

std::vector<Case> replica_buffer_cells() {
  std::vector<Case> cells;
  const auto add = [&](const char* implementation, std::int64_t replicas, const char* model,
                       const char* hole = "") {
    std::map<std::string, std::string> options{{"model", model}};
    if (*hole != 0)
      options["hole"] = hole;
    Case cell = cell_of("buffer-broadcast", implementation, replicas, std::move(options));
    cell.required_checks.push_back("kept-buffers");
    cell.expected_marks = {"buffers-change-in-forward"};
    cell.id = case_id(cell);
    cells.push_back(std::move(cell));
  };
  for (const std::int64_t replicas : {2, 3, 5})
    add("dp", replicas, "conv_bn");
  // Its forward puts another tensor in the place of the buffer.
  add("dp", 3, "ema");
  add("balanced_dp", 2, "ema");
  add("dp", 2, "gated");
  add("dp", 2, "gated", "no_grad");
  return cells;
}

}  // namespace lockstep
