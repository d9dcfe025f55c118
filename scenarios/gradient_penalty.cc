#include "scenarios/gradient_penalty.h"

#include "scenarios/steps.h"
#include "scenarios/subject_cells.h"

namespace lockstep {
namespace {

constexpr std::int64_t kSteps = 2;  // The Reducer rebuilds its buckets at the second step.
constexpr double kWeight = 10;      // As in the papers.

// Never two rows alone: batch normalisation makes them 1 and -1 whatever they are, and the inner
// gradient vanishes.
std::vector<std::int64_t> rows_of(const Case& cell) {
  constexpr std::int64_t kUneven[] = {8, 6, 10, 7, 12};
  const std::int64_t replicas = std::stoll(cell.option("replicas", "0"));
  if (replicas > 0)
    return {8 * replicas - 1};
  std::vector<std::int64_t> rows;
  for (std::int32_t rank = 0; rank < cell.world_size; ++rank)
    rows.push_back(cell.option("rows") == "even" ? 8 : kUneven[rank % 5]);
  return rows;
}

Case cell_of(const std::string& implementation, std::int32_t size, const std::string& penalty,
             std::map<std::string, std::string> options) {
  const bool replicates = implementation == "dp" || implementation == "balanced_dp";
  Case cell{.scenario = "gradient-penalty",
            .implementation = implementation,
            .world_size = replicates ? 1 : size};
  cell.options = std::move(options);
  cell.options["penalty"] = penalty;
  cell.options["optimizer"] = "adam";  // Steps that do not saturate the critic.
  if (replicates)
    cell.options["replicas"] = std::to_string(size);
  cell.expected_marks = {"penalised"};
  cell.required_checks = {"gradient-reference", "process-end", "second-derivative"};
  if (!replicates)
    cell.required_checks.insert(cell.required_checks.end(),
                                {"collective-order", "deadlock", "replica-equality"});
  cell.id = case_id(cell);
  return cell;
}

}  // namespace

std::string_view GradientPenalty::question() const {
  return "does a gradient penalty give the gradient that one process would compute?";
}

std::vector<Case> GradientPenalty::cells() const {
  const std::pair<std::int32_t, const char*> sizes[] = {
      {2, "wgan_gp"}, {3, "wgan_lp"}, {5, "dragan"}};
  std::vector<Case> cells;
  for (const char* implementation : {"dp", "balanced_dp", "ddp", "bucketed_ddp"}) {
    for (const auto& [size, penalty] : sizes) {
      cells.push_back(cell_of(implementation, size, penalty, {{"model", "critic"}}));
      cells.push_back(cell_of(implementation, size, penalty, {{"model", "critic_bn"}}));
      cells.push_back(
          cell_of(implementation, size, penalty, {{"model", "critic_bn"}, {"sync_bn", "on"}}));
    }
    cells.push_back(cell_of(implementation, 2, "wgan_gp", {{"model", "critic"}, {"loss", "sum"}}));
    cells.push_back(cell_of(implementation, 2, "wgan_gp", {{"model", "critic_patches"}}));
  }
  return cells;
}

// Few who write a wrapper have thought of it: of others than PyTorch's it is tried, once.
std::vector<Case> GradientPenalty::cells(const Subject& subject) const {
  if (subject.kind != "ddp")
    return {};
  if (subject.of_pytorch)
    return subject_cells(cells(), "ddp", subject);
  return {tried_cell(cell_of("ddp", 2, "wgan_gp", {{"model", "critic"}}), subject,
                     "three forwards before one backward, which has second derivatives")};
}

Result<void> GradientPenalty::converse(Conversation& talk, const Case& cell) const {
  Result<Training> training = begin(talk, cell.option("model", "critic"));
  if (!training)
    return training.error();
  for (std::int64_t step = 0; step < kSteps; ++step) {
    StepPlan plan;
    plan.step = step;
    plan.rows = rows_of(cell);
    plan.loss = cell.option("loss", "mean");
    plan.penalty = {cell.option("penalty", "wgan_gp"), kWeight};
    if (auto computed = reference_step(talk, *training, plan); !computed)
      return computed;
    if (auto trained = train_step(talk, *training, plan); !trained)
      return trained;
  }
  if (auto marked = talk.mark("penalised"); !marked)
    return marked;
  return talk.bye();
}

}  // namespace lockstep
