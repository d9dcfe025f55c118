#include "scenarios/refusals.h"

#include "scenarios/steps.h"

namespace lockstep {
namespace {

constexpr std::chrono::seconds kSubjectLimit{10};

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

struct Unfit {
  const char* how{};
  const char* naming{};
};

// In the forward of a normalisation over all ranks, by every one of them.
std::vector<Case> normalisations() {
  constexpr Unfit kUnfit[] = {{"channels", "floating"},    {"integers", "floating"},
                              {"vector", "floating"},      {"width", "weight"},
                              {"variance", "running_var"}, {"counter", "num_batches_tracked"},
                              {"graph", "differ"},         {"one_row", "training"}};
  std::vector<Case> cells;
  for (const Unfit& unfit : kUnfit)
    cells.push_back(cell_of(
        "ddp", 3, unfit.how,
        {{"model", "bn_rows"}, {"sync_bn", "on"}, {"refuses", "step"}, {"naming", unfit.naming}}));
  return cells;
}

// By the next forward: the backward before it has left a parameter out, so nothing was averaged.
Case unfinished_reduction(const char* implementation) {
  return cell_of(implementation, 3, "unfinished",
                 {{"model", "mixed"}, {"refuses", "step"}, {"naming", "finished"}});
}

// By the caller of data parallel: not only what the first replica raises, and not that another one
// waited in vain for it.
std::vector<Case> failing_replicas(const char* implementation) {
  const std::map<std::string, std::string> plain{
      {"model", "mlp"}, {"replicas", "3"}, {"refuses", "step"}, {"naming", "fault"}};
  std::map<std::string, std::string> together = plain;
  together["model"] = "bn_rows";
  together["sync_bn"] = "on";
  return {cell_of(implementation, 1, "replica", plain),
          cell_of(implementation, 1, "replica", together)};
}

// One rank's module is another one than that of the others.
std::vector<Case> modules_that_differ(const char* implementation) {
  std::vector<Case> cells;
  for (const char* unfit : {"shape", "strides", "dtype"})
    cells.push_back(cell_of(implementation, 3, unfit,
                            {{"model", "mlp"}, {"refuses", "wrap"}, {"naming", "'fc2.weight'"}}));
  cells.push_back(cell_of(implementation, 3, "fewer",
                          {{"model", "mlp"}, {"refuses", "wrap"}, {"naming", "'fc4.bias'"}}));
  cells.push_back(cell_of(implementation, 3, "frozen",
                          {{"model", "mlp"}, {"refuses", "wrap"}, {"naming", "require"}}));
  return cells;
}

Result<void> unfit_step(Conversation& talk, Training& training, const Case& cell, bool& refused) {
  const std::string unfit = cell.option("unfit");
  StepPlan plan{.rows = {4, 2, 3}, .loss = "sum"};
  if (unfit == "one_row")
    plan.rows = {1, 0, 0};
  if (unfit == "replica") {
    plan.rows = {6};
    if (auto asked =
            talk.ask_rank(Rank{0}, {{"message", "fault"}, {"kind", "raise"}, {"at", "replica/1"}});
        !asked)
      return asked.error();
  }
  if (unfit == "unfinished") {
    plan.observed = false;
    if (auto begun = train_step(talk, training, plan); !begun)
      return begun;
    plan.step = 1;
  }
  return train_step(talk, training, plan, &refused);
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
    cells.push_back(unfinished_reduction(implementation));
  }
  for (const char* implementation : {"dp", "balanced_dp"}) {
    for (Case& cell : failing_replicas(implementation))
      cells.push_back(std::move(cell));
  }
  for (Case& cell : normalisations())
    cells.push_back(std::move(cell));
  return cells;
}

Result<void> RefusedInputs::converse(Conversation& talk, const Case& cell) const {
  // One that raises on a single rank leaves the others waiting for it.
  if (cell.of_subject)
    talk.answers_within(kSubjectLimit);
  Result<Training> training = begin(talk, cell.option("model"));
  if (!training)
    return training.error();
  bool refused = training->refused;
  if (cell.option("refuses") == "step") {
    if (auto stepped = unfit_step(talk, *training, cell, refused); !stepped)
      return stepped;
  }
  if (refused) {
    if (auto marked = talk.mark("refused"); !marked)
      return marked;
  }
  return talk.bye();
}

}  // namespace lockstep
