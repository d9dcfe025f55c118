#include "scenarios/scenario.h"

#include <algorithm>

#include "scenarios/batches.h"
#include "scenarios/buffer_broadcast.h"
#include "scenarios/clean_exit.h"
#include "scenarios/gradient_equivalence.h"
#include "scenarios/gradient_penalty.h"
#include "scenarios/refusals.h"
#include "scenarios/sampler_disjointness.h"
#include "scenarios/subject_cells.h"
#include "scenarios/sync_bn_statistics.h"
#include "scenarios/uneven_batches.h"

namespace lockstep {

const std::vector<std::unique_ptr<Scenario>>& all_scenarios() {
  static const auto scenarios = [] {
    std::vector<std::unique_ptr<Scenario>> all;
    all.push_back(std::make_unique<GradientEquivalence>());
    all.push_back(std::make_unique<BufferBroadcast>());
    all.push_back(std::make_unique<SyncBnStatistics>());
    all.push_back(std::make_unique<UnevenBatches>());
    all.push_back(std::make_unique<CleanExit>());
    all.push_back(std::make_unique<RefusedInputs>());
    all.push_back(std::make_unique<SamplerDisjointness>());
    all.push_back(std::make_unique<GradientPenalty>());
    return all;
  }();
  return scenarios;
}

std::vector<Case> Scenario::cells(const Subject& subject) const {
  return subject.kind == "ddp" ? subject_cells(cells(), "ddp", subject) : std::vector<Case>{};
}

std::string case_id(const Case& cell) {
  std::string id = cell.scenario + "/" + cell.implementation + "/w" +
                   std::to_string(cell.world_size) + "/" + cell.dtype;
  std::string options;
  for (const auto& [name, value] : cell.options) {
    const bool drawn =
        cell.mutant != nullptr && (name == "rank" || name == "step" || name == "bucket");
    if (!drawn)  // A case keeps its name whatever the seed.
      options += (options.empty() ? "" : ",") + name + "=" + value;
  }
  return options.empty() ? id : id + "/" + options;
}

namespace {

Case designated_case(const mutants::Mutant& mutant, std::uint64_t seed) {
  Case cell{.scenario = std::string(mutant.scenario),
            .implementation = "mutant/" + std::string(mutant.name),
            .world_size = mutant.world_size,
            .dtype = std::string(mutant.dtype)};
  cell.seed = seed;
  cell.mutant = &mutant;
  for (const mutants::Option& option : mutant.options) {
    if (!option.name.empty())
      cell.options.emplace(option.name, option.value);
  }
  Draw draw(mix_seed({seed, std::hash<std::string_view>{}(mutant.name)}));
  const auto world = static_cast<std::int64_t>(mutant.world_size);
  if (mutant.draws_rank)
    cell.options["rank"] = std::to_string(draw.integer(0, world - 1));
  if (mutant.draws_step)
    cell.options["step"] = std::to_string(draw.integer(0, 1));
  if (mutant.draws_bucket)
    cell.options["bucket"] = std::to_string(draw.integer(0, 3));
  cell.id = case_id(cell);
  return cell;
}

}  // namespace

std::vector<Case> mutant_cases(const Scenario& scenario, std::uint64_t seed) {
  std::vector<Case> cases;
  for (const mutants::Mutant* mutant : mutants::all()) {
    if (mutant->scenario == scenario.name())
      cases.push_back(designated_case(*mutant, seed));
  }
  return cases;
}

std::vector<Case> mutant_cases(const Subject& subject, std::uint64_t seed) {
  std::vector<Case> cases;
  for (const mutants::Mutant& mutant : mutants::kSubjectMutants) {
    if (mutant.of != subject.kind)
      continue;
    Case cell = subject_cell(designated_case(mutant, seed), subject);
    if (!cell.not_applicable.empty() || !cell.not_declared.empty())
      continue;
    cell.mutant = &mutant;
    cell.required = false;
    cell.id = case_id(cell);
    cases.push_back(std::move(cell));
  }
  return cases;
}

}  // namespace lockstep
