#include "scenarios/subject_cells.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>

namespace lockstep {
namespace {

/// An option of a cell, and what it asks of a subject.
struct Need {
  std::string_view option{}, value{};  ///< Empty value: any.
  const char* feature{};
};

constexpr std::array kNeeds{
    Need{"accumulate", "", "no_sync"},
    Need{"hole", "", "buffer_holes"},
    Need{"hole", "no_sync", "no_sync"},
    Need{"broadcast_buffers", "", "broadcast_buffers"},
    Need{"forward_sync_buffers", "", "forward_sync_buffers"},
    Need{"find_unused_parameters", "on", "find_unused_parameters"},
    Need{"static_graph", "on", "static_graph"},
    Need{"gradient_as_bucket_view", "on", "gradient_as_bucket_view"},
    Need{"ignored", "", "ignored"},
    Need{"join", "", "join"},
    Need{"join", "disabled", "join_disabled"},
    Need{"hook", "", "comm_hook"},
    Need{"unfit", "", "refuses_differing"},
    Need{"forwards", "", "buffer_holes"},
    Need{"drop_last", "on", "drop_last"},
    Need{"shuffle", "off", "shuffle"},
    Need{"spoiled", "epoch_ignored", "set_epoch"},
};

/// Of a layer that stands in the place of batch normalisations.
constexpr std::array kNeedsOfNorm{
    Need{"model", "bn_rows", "dim2"},
    Need{"model", "bn_sequence", "dim3"},
    Need{"model", "conv_bn", "dim4"},
    Need{"model", "bn_volume", "dim5"},
    Need{"model", "bn_cumulative", "momentum"},
    Need{"model", "bn_rows", "unbiased_running"},
    Need{"model", "bn_sequence", "unbiased_running"},
    Need{"model", "conv_bn", "unbiased_running"},
    Need{"model", "bn_volume", "unbiased_running"},
    Need{"model", "bn_cumulative", "unbiased_running"},
    Need{"model", "bn_plain", "unbiased_running"},
    Need{"model", "bn_cumulative", "dim2"},
    Need{"model", "bn_plain", "affine"},
    Need{"model", "bn_plain", "dim2"},
    Need{"model", "bn_stateless", "track_running_stats"},
    Need{"model", "bn_stateless", "dim2"},
};

bool asks(const Case& cell, const Need& need) {
  const auto option = cell.options.find(std::string(need.option));
  return option != cell.options.end() && (need.value.empty() || option->second == need.value);
}

/// Why a need of the cell is not met; empty if all are.
template <class Needs>
std::string unmet(const Case& cell, const Subject& subject, const Needs& needs) {
  for (const Need& need : needs) {
    if (!asks(cell, need) || subject.has(need.feature))
      continue;
    const auto why = subject.lacks.find(need.feature);
    return why == subject.lacks.end() ? fmt::format("{} is not declared", need.feature)
                                      : why->second;
  }
  return {};
}

}  // namespace

Case subject_cell(Case cell, const Subject& subject) {
  cell.implementation = subject.name;
  cell.of_subject = true;
  cell.kind = subject.kind;
  cell.one_seed = !subject.has("seed");
  cell.mutant = nullptr;
  if (cell.dtype == "float64" && subject.lacks.count("float64") > 0)
    cell.dtype = "float32";
  std::erase(cell.required_checks, "bucket-layout");  // Of which a subject says nothing.
  std::erase(cell.expected_marks, "unsynchronised");
  cell.id = case_id(cell);
  if (!subject.absent.empty())
    cell.not_applicable = subject.absent;
  else if (cell.option("sync_bn", "off") != "off" && subject.kind == "ddp")
    cell.not_declared = "SyncBatchNorm is a subject of its own: --as sync_bn";
  else
    cell.not_declared = unmet(cell, subject, kNeeds);
  if (cell.not_declared.empty() && subject.kind == "sync_bn")
    cell.not_declared = unmet(cell, subject, kNeedsOfNorm);
  return cell;
}

Case tried_cell(Case cell, const Subject& subject, const std::string& why) {
  cell = subject_cell(std::move(cell), subject);
  if (!cell.not_declared.empty() || !cell.not_applicable.empty())
    return cell;
  cell.not_declared = why;
  cell.tried = true;
  cell.required = false;
  return cell;
}

std::vector<Case> subject_cells(const std::vector<Case>& all, const std::string& implementation,
                                const Subject& subject) {
  std::vector<Case> cells;
  for (const Case& cell : all) {
    if (cell.implementation == implementation)
      cells.push_back(subject_cell(cell, subject));
  }
  return cells;
}

}  // namespace lockstep
