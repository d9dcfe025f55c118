#include "scenarios/refusals.h"

#include "scenarios/replica_cells.h"
#include "scenarios/steps.h"

namespace lockstep {
namespace {

Case cell_of(const char* implementation, std::int32_t world, const char* unfit,
             std::map<std::string, std::string> options) {
  Case cell{.scenario = "refusals", .implementation = implementation, .world_size = world};
  cell.options = std::move(options);
  cell.options["unfit"] = unfit;
  cell.expected_marks = {"refused"};
  cell.required_checks = {"process-end", "refusals"};
  cell.id = case_id(cell);
  return cell;
}

// One rank's module is another one than that of the others.
std::vector<Case> modules_that_differ(const char* implementation) {
  std::vector<Case> cells;
  for (const char* unfit : {"shape", "strides", "dtype"})
    cells.push_back(cell_of(implementation, 3, unfit,
                            {{"model", "mlp"}, {"refuses", "wrap"}, {"naming", "'fc2.weight'"}}));
  cells.push_back(cell_of(implementation, 3, "fewer",
                          {{"model", "mlp"}, {"refuses", "wrap"}, {"naming", "'fc4.bias'"}}));
  return cells;
}

}  // namespace

std::string_view RefusedInputs::question() const {
  return "is what cannot be right refused by all ranks, and named?";
}

std::vector<Case> RefusedInputs::cells() const {
  std::vector<Case> cells;
  for (const char* implementation : {"ddp", "bucketed_ddp"}) {
    for (Case& cell : modules_that_differ(implementation))
      cells.push_back(std::move(cell));
    // A parameter without a gradient, and nobody was told to look for it.
    const bool names = std::string_view(implementation) == "bucketed_ddp";
    cells.push_back(cell_of(implementation, 2, "unfinished",
                            {{"model", "mixed"},
                             {"refuses", "step"},
                             {"naming", names ? "'unused'" : "finished reduction"}}));
  }
  for (const char* implementation : {"dp", "balanced_dp"}) {
    for (const char* replica : {"0", "2"})
      cells.push_back(cell_of(implementation, 1, "replica",
                              {{"model", "mlp"},
                               {"replicas", "3"},
                               {"refuses", "step"},
                               {"raises", replica},
                               {"naming", std::string("replica ") + replica}}));
  }
  return cells;
}

Result<void> RefusedInputs::converse(Conversation& talk, const Case& cell) const {
  Result<Training> training = begin(talk, cell.option("model"));
  if (!training)
    return training.error();
  bool refused = training->refused;
  for (std::int64_t step = 0; step < 2 && cell.option("refuses") == "step"; ++step) {
    StepPlan plan;
    plan.step = step;
    plan.rows.assign(static_cast<std::size_t>(cell.world_size), 4);
    if (replicas_of(cell) > 0)
      plan.rows = {replica_rows(cell)};
    plan.must_refuse = step == 1;
    // What an unfinished reduction leaves is each rank's own.
    plan.optimize = cell.option("unfit") != "unfinished";
    if (const std::string replica = cell.option("raises"); step == 1 && !replica.empty()) {
      if (auto asked = talk.ask_rank(
              Rank{0}, {{"message", "fault"}, {"kind", "raise"}, {"at", "replica/" + replica}});
          !asked)
        return asked.error();
    }
    if (auto trained = train_step(talk, *training, plan, &refused); !trained)
      return trained;
  }
  if (refused) {
    if (auto marked = talk.mark("refused"); !marked)
      return marked;
  }
  return talk.bye();
}

}  // namespace lockstep
