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
  constexpr Unfit kUnfit[] = {
      {"channels", "[rows, channels, ...]"},   {"integers", "[rows, channels, ...]"},
      {"vector", "[rows, channels, ...]"},     {"width", "weight"},
      {"variance", "running_var"},             {"counter", "num_batches_tracked"},
      {"graph", "yes yes no"}, {"one_row", "more than 1 value per channel"}};
  std::vector<Case> cells;
  for (const Unfit& unfit : kUnfit)
    cells.push_back(
        cell_of("ddp", 3, unfit.how,
                {{"model", "bn_rows"}, {"sync_bn", "on"}, {"refuses", "step"}, {"naming", unfit.naming}}));
  return cells;
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
                          {{"model", "mlp"}, {"refuses", "wrap"}, {"naming", "a gradient"}}));
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
    StepPlan plan{.rows = {4, 2, 3}, .loss = "sum"};
    if (cell.option("unfit") == "one_row")
      plan.rows = {1, 0, 0};
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
