#include "scenarios/clean_exit.h"

#include "scenarios/steps.h"
#include "scenarios/subject_cells.h"

namespace lockstep {
namespace {

constexpr double kLateS = 0.6;   // Of the rank that a victim waits for in a collective,
constexpr double kAfterS = 0.2;  // and the time into its wait at which it is struck.
constexpr double kForEverS = 3600;
constexpr std::chrono::seconds kHangLimit{2};  // Two looks at what stands still, with room.

bool hangs(const Case& cell) {
  return cell.option("fault") == "sleep" || cell.option("fault") == "stop";
}

Case cell_of(const std::string& implementation, std::int32_t world,
             std::map<std::string, std::string> options) {
  Case cell{.scenario = "clean-exit", .implementation = implementation, .world_size = world};
  cell.options = std::move(options);
  cell.required_checks = {"process-end"};
  if (cell.option("fault").empty()) {
    cell.required_checks.insert(cell.required_checks.end(), {"collective-order", "deadlock"});
    cell.expected_marks = {"everybody-home"};
  }
  cell.id = case_id(cell);
  return cell;
}

Result<void> ask_for_fault(Conversation& talk, const Case& cell) {
  const Rank victim{std::stoi(cell.option("rank"))};
  const std::string at = cell.option("at");
  protocol::Json fault{
      {"message", "fault"}, {"kind", cell.option("fault")}, {"at", at}, {"status", 3}};
  if (hangs(cell)) {
    fault["seconds"] = kForEverS;
    talk.answers_within(kHangLimit);
  }
  if (at == "collective") {
    fault["seconds"] = kAfterS;
    const Rank late{(victim.value + 1) % cell.world_size};
    if (auto asked = talk.ask_rank(
            late,
            {{"message", "fault"}, {"kind", "sleep"}, {"at", "backward"}, {"seconds", kLateS}});
        !asked)
      return asked.error();
  }
  if (auto asked = talk.ask_rank(victim, fault); !asked)
    return asked.error();
  return {};
}

}  // namespace

std::string_view CleanExit::question() const {
  return "does every process end, with its true status, and is nothing left behind?";
}

std::vector<Case> CleanExit::cells() const {
  std::vector<Case> cells;
  for (const std::int32_t world : {2, 3, 5})
    cells.push_back(cell_of("ddp", world, {}));
  struct Fault {
    const char *kind{}, *at{};
  };
  constexpr Fault kFaults[] = {
      {"raise", "forward"},    {"raise", "backward"}, {"raise", "teardown"},
      {"kill", "init"},        {"kill", "forward"},   {"kill", "backward"},
      {"kill", "collective"},  {"kill", "teardown"},  {"exit", "forward"},
      {"exit", "teardown"},    {"exit", "backward"},  {"exit", "collective"},
      {"raise", "collective"}, {"sleep", "forward"},  {"sleep", "backward"},
      {"stop", "collective"},  {"sleep", "init"},     {"sleep", "teardown"}};
  std::int32_t victim = 0;
  for (const Fault& fault : kFaults) {
    cells.push_back(
        cell_of("ddp", 3,
                {{"fault", fault.kind}, {"at", fault.at}, {"rank", std::to_string(victim++ % 3)}}));
  }
  // What it leaves must be found and named; a thread dies with its process, and a zombie with its
  // parent.
  for (const char* left :
       {"child", "new_session", "deaf_child", "port", "segment", "thread", "zombie"}) {
    cells.push_back(cell_of(
        "ddp", 2, {{"fault", left}, {"at", "now"}, {"rank", std::to_string(victim++ % 2)}}));
  }
  // Its reducer has hooks of its own to leave with.
  cells.push_back(cell_of("bucketed_ddp", 3, {}));
  for (const char* at : {"backward", "collective"})
    cells.push_back(cell_of("bucketed_ddp", 3, {{"fault", "kill"}, {"at", at}, {"rank", "1"}}));
  return cells;
}

// Faults are asked of the hosts, and say nothing of what runs in them.
std::vector<Case> CleanExit::cells(const Subject& subject) const {
  std::vector<Case> cells;
  if (subject.kind == "ddp") {
    for (const std::int32_t world : {2, 3, 5})
      cells.push_back(subject_cell(cell_of("ddp", world, {}), subject));
  }
  return cells;
}

std::vector<std::pair<std::string, std::string>> CleanExit::not_applicable() const {
  const char* const why = "its replicas are threads of one process: no other rank needs it";
  return {{"dp", why}, {"balanced_dp", why}};
}

Result<void> CleanExit::converse(Conversation& talk, const Case& cell) const {
  const std::string at = cell.option("at");
  const auto at_init = [&] { return at == "init" ? ask_for_fault(talk, cell) : Result<void>{}; };
  Result<Training> training = begin(talk, "mlp", at_init);
  if (!training)
    return training.error();
  for (std::int64_t step = 0; step < 2; ++step) {
    if (step == 1 && !at.empty() && at != "teardown") {
      if (auto asked = ask_for_fault(talk, cell); !asked)
        return asked;
    }
    StepPlan plan;
    plan.step = step;
    plan.rows.assign(static_cast<std::size_t>(cell.world_size), 4);
    if (auto trained = train_step(talk, *training, plan); !trained)
      return trained;
  }
  if (at == "teardown") {
    if (auto asked = ask_for_fault(talk, cell); !asked)
      return asked;
  }
  if (at == "now")
    talk.look_at_family();
  if (auto left = talk.bye(/*whole=*/true); !left)
    return left;
  return talk.mark("everybody-home");
}

}  // namespace lockstep
