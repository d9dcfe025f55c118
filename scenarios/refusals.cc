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
  }
  return cells;
}

Result<void> RefusedInputs::converse(Conversation& talk, const Case& cell) const {
  // One that raises on a single rank leaves the others waiting for it.
  if (cell.of_subject)
    talk.answers_within(kSubjectLimit);
  const Result<Training> training = begin(talk, cell.option("model"));
  if (!training)
    return training.error();
  if (training->refused) {
    if (auto marked = talk.mark("refused"); !marked)
      return marked;
  }
  return talk.bye();
}

}  // namespace lockstep
