#include "scenarios/gradient_equivalence.h"

#include <set>
#include <utility>

#include "scenarios/replica_cells.h"
#include "scenarios/steps.h"
#include "scenarios/subject_cells.h"

namespace lockstep {
namespace {

// The Reducer rebuilds its buckets at the second forward; the third uses them.
constexpr std::int64_t kSteps = 3;
constexpr std::int64_t kStepsOfBranches = 4;

// Which branch a rank's batch takes: the positive one on all ranks, on none, and on the last; the
// negative one on rank 0 alone; neither.
std::vector<double> offsets_of(const Case& cell, std::int64_t step) {
  constexpr double kFar = 10;
  std::vector<double> offsets(static_cast<std::size_t>(cell.world_size), step == 0 ? kFar : 0);
  if (step == 1)
    offsets.front() = -kFar;
  if (step == 3)
    offsets.back() = kFar;
  return offsets;
}

std::vector<std::int64_t> rows_of(const Case& cell) {
  constexpr std::int64_t kUneven[] = {1, 7, 2, 5, 3};
  if (replicas_of(cell) > 0)
    return {replica_rows(cell)};
  std::vector<std::int64_t> rows;
  for (std::int32_t rank = 0; rank < cell.world_size; ++rank)
    rows.push_back(cell.option("rows") == "uneven" ? kUneven[rank % 5] : 4);
  return rows;
}

Case cell_of(std::int32_t world, const std::string& dtype,
             std::map<std::string, std::string> options, const char* implementation = "ddp") {
  Case cell{.scenario = "gradient-equivalence",
            .implementation = implementation,
            .world_size = world,
            .dtype = dtype};
  cell.options = std::move(options);
  cell.expected_marks = {"buckets-reduced"};
  cell.required_checks = {"collective-order", "deadlock", "gradient-reference", "process-end",
                          "replica-equality"};
  if (!cell.option("bucket_cap_bytes").empty())
    cell.required_checks.emplace_back("bucket-layout");
  if (!cell.option("accumulate").empty())
    cell.expected_marks.emplace_back("unsynchronised");
  cell.required = dtype == "float64";
  cell.id = case_id(cell);
  return cell;
}

StepPlan step_of(const Case& cell, std::int64_t step) {
  StepPlan plan;
  plan.step = step;
  plan.rows = rows_of(cell);
  plan.micro_batches = std::stoll(cell.option("accumulate", "1"));
  plan.forwards = std::stoll(cell.option("forwards", "1"));
  if (cell.option("rule") == "exact") {
    plan.values = Values::kSmallIntegers;
    // Divisible by 2, 3 and 5: division by the world size stays exact. So small that half
    // precision, which a hook may make of it, is exact, too.
    plan.scale = cell.option("hook").empty() ? 30 : cell.world_size;
    plan.loss = "sum";
  }
  if (cell.option("model") == "branches")
    plan.offsets = offsets_of(cell, step);
  plan.offset_first = cell.option("model") == "branches" && plan.micro_batches > 1;
  plan.memory = cell.option("memory") == "on";
  if (cell.option("argument") == "whole")
    plan.argument = 2.5;
  return plan;
}

// One step of which nothing is reduced: each rank has its own gradient.
Result<void> own_step(Conversation& talk, Training& training, StepPlan plan, const char* mark) {
  plan.alone = true;
  plan.optimize = false;
  if (auto computed = reference_step(talk, training, plan); !computed)
    return computed;
  if (auto trained = train_step(talk, training, plan); !trained)
    return trained;
  return talk.mark(mark);
}

// What is to be accumulated is each rank's own until a step that synchronises.
Result<void> unsynchronised_step(Conversation& talk, Training& training, std::int64_t step) {
  StepPlan plan = step_of(talk.cell(), step);
  plan.micro_batches = 1;
  plan.sync = false;
  return own_step(talk, training, std::move(plan), "unsynchronised");
}

// The wrapper is gone, and the module trains on by itself.
Result<void> unwrapped_step(Conversation& talk, Training& training, std::int64_t step) {
  if (auto gone = talk.ask_ranks([](Rank) { return protocol::Json{{"message", "unwrap"}}; }); !gone)
    return gone.error();
  return own_step(talk, training, step_of(talk.cell(), step), "unwrapped");
}

// An argument that cannot be split is handed whole to every replica: all have seen the same one.
Result<void> mark_whole_argument(Conversation& talk) {
  std::set<std::string> values;
  std::set<std::string> replicas;
  for (const Observation& seen : talk.observations()) {
    if (seen.role == Role::kRank && seen.name.rfind("argument/", 0) == 0) {
      values.insert(seen.digest);
      replicas.insert(seen.name);
    }
  }
  if (values.size() != 1 || static_cast<std::int64_t>(replicas.size()) != replicas_of(talk.cell()))
    return {};
  return talk.mark("argument-whole");
}

// Our own reducer: each question once, and not at every world size.
void add_bucketed_ddp(std::vector<Case>& cells) {
  const auto add = [&](std::int32_t world, const char* dtype,
                       std::map<std::string, std::string> options) {
    cells.push_back(cell_of(world, dtype, std::move(options), "bucketed_ddp"));
  };
  for (const std::int32_t world : {2, 3})
    add(world, "float64", {{"model", "linear_int"}, {"rule", "exact"}});
  for (const std::int32_t world : {2, 5})
    add(world, "float64", {{"model", "mlp"}, {"rows", "uneven"}, {"bucket_cap_bytes", "256"}});
  add(5, "float64", {{"model", "mlp"}, {"accumulate", "3"}, {"bucket_cap_bytes", "256"}});
  add(3, "float64", {{"model", "mixed"}, {"find_unused_parameters", "on"}});
  add(3, "float32", {{"model", "mlp"}, {"rows", "uneven"}, {"bucket_cap_bytes", "256"}});
}

}  // namespace

std::string_view GradientEquivalence::question() const {
  return "do all ranks hold the gradient that one process would compute?";
}

std::vector<Case> GradientEquivalence::cells() const {
  std::vector<Case> cells;
  for (const std::int32_t world : {2, 3, 5}) {
    cells.push_back(cell_of(world, "float64", {{"model", "linear_int"}, {"rule", "exact"}}));
    cells.push_back(cell_of(world, "float64",
                            {{"model", "mlp"}, {"rows", "uneven"}, {"bucket_cap_bytes", "256"}}));
    cells.push_back(cell_of(world, "float64",
                            {{"model", "mlp"}, {"accumulate", "3"}, {"bucket_cap_bytes", "256"}}));
    cells.push_back(
        cell_of(world, "float64", {{"model", "mixed"}, {"find_unused_parameters", "on"}}));
    cells.push_back(cell_of(world, "float32",
                            {{"model", "mlp"}, {"rows", "uneven"}, {"bucket_cap_bytes", "256"}}));
  }
  for (Case& cell : replica_gradient_cells())
    cells.push_back(std::move(cell));
  cells.push_back(cell_of(3, "float64", {{"model", "mixed"}, {"static_graph", "on"}}));
  for (const char* implementation : {"ddp", "bucketed_ddp"}) {
    // Filled to the byte by weight and bias of a layer: of the last one, and of those before it.
    cells.push_back(
        cell_of(2, "float64",
                {{"model", "mlp"}, {"bucket_cap_bytes", "576"}, {"first_bucket_bytes", "144"}},
                implementation));
    cells.push_back(
        cell_of(2, "float64",
                {{"model", "mixed"}, {"find_unused_parameters", "on"}, {"bucket_cap_bytes", "64"}},
                implementation));
    cells.push_back(cell_of(3, "float64", {{"model", "branches"}, {"find_unused_parameters", "on"}},
                            implementation));
    cells.push_back(cell_of(
        3, "float64",
        {{"model", "branches"}, {"find_unused_parameters", "on"}, {"bucket_cap_bytes", "64"}},
        implementation));
    cells.push_back(cell_of(3, "float64", {{"model", "flat"}}, implementation));
    // What only a micro-batch before the last has used is reduced as well.
    cells.push_back(
        cell_of(3, "float64",
                {{"model", "branches"}, {"find_unused_parameters", "on"}, {"accumulate", "2"}},
                implementation));
    cells.push_back(cell_of(
        3, "float64",
        {{"model", "linear_int"}, {"rule", "exact"}, {"ignored", "bias"}, {"unwrapped", "on"}},
        implementation));
    cells.back().expected_marks.emplace_back("unwrapped");
    cells.push_back(cell_of(3, "float64",
                            {{"model", "mlp"},
                             {"accumulate", "3"},
                             {"bucket_cap_bytes", "256"},
                             {"gradient_as_bucket_view", "on"}},
                            implementation));
  }
  add_bucketed_ddp(cells);
  return cells;
}

// What people write is asked first what every program needs, and then, told apart, what only some
// do: parameters that have no gradient, or that one rank uses and another does not.
std::vector<Case> GradientEquivalence::cells(const Subject& subject) const {
  if (subject.kind != "ddp")
    return {};
  std::vector<Case> cells;
  for (const std::int32_t world : {2, 3})
    cells.push_back(subject_cell(cell_of(world, "float64", {{"model", "tied"}}), subject));
  cells.push_back(subject_cell(cell_of(3, "float64", {{"model", "conv_bn"}}), subject));
  for (const char* hook : {"allreduce", "fp16_compress", "post_localSGD"})
    cells.push_back(subject_cell(
        cell_of(2, "float64", {{"model", "linear_int"}, {"rule", "exact"}, {"hook", hook}}),
        subject));
  cells.push_back(subject_cell(cell_of(3, "float64", {{"model", "shared_gradient"}}), subject));
  for (const Case& cell : subject_cells(this->cells(), "ddp", subject)) {
    const bool once = subject.of_pytorch || cell.world_size == 3 ||
                      (cell.dtype == "float64" && cell.world_size == 2);
    if (!once && cell.option("rule") != "exact")
      continue;  // What is asked at three world sizes of PyTorch's own is asked of others at two.
    cells.push_back(cell);
    if (cell.option("model") == "mlp" && cell.option("rows") == "uneven" && subject.of_pytorch &&
        cell.dtype == "float64" && cell.world_size == 3) {
      std::map<std::string, std::string> views = cell.options;
      views["gradient_as_bucket_view"] = "on";
      cells.push_back(subject_cell(cell_of(3, "float64", std::move(views)), subject));
    }
  }
  cells.push_back(tried_cell(cell_of(2, "float64", {{"model", "frozen"}}), subject,
                             "what becomes of a parameter that requires no gradient"));
  const auto lacks = [&](const char* feature) {
    const auto why = subject.lacks.find(feature);
    return why == subject.lacks.end() ? std::string() : why->second;
  };
  if (const std::string why = lacks("find_unused_parameters"); !why.empty())
    cells.push_back(tried_cell(cell_of(3, "float64", {{"model", "branches"}}), subject, why));
  if (const std::string why = lacks("initial"); !why.empty())
    cells.push_back(
        tried_cell(cell_of(2, "float64", {{"model", "mlp"}, {"initial", "own"}}), subject, why));
  return cells;
}

Result<void> GradientEquivalence::converse(Conversation& talk, const Case& cell) const {
  Result<Training> training = begin(talk, cell.option("model", "mlp"));
  if (!training)
    return training.error();
  const std::int64_t steps = cell.option("model") == "branches" ? kStepsOfBranches : kSteps;
  for (std::int64_t step = 0; step < steps; ++step) {
    const StepPlan plan = step_of(cell, step);
    if (auto computed = reference_step(talk, *training, plan); !computed)
      return computed;
    // A rank that is merely late must never be found guilty of anything.
    if (const std::string seconds = cell.option("late_s"); step == 1 && !seconds.empty()) {
      if (auto late = talk.ask_rank(Rank{cell.world_size - 1}, {{"message", "fault"},
                                                                {"kind", "sleep"},
                                                                {"at", "backward"},
                                                                {"seconds", std::stod(seconds)}});
          !late)
        return late.error();
    }
    bool refused = false;
    if (auto trained = train_step(talk, *training, plan, &refused); !trained)
      return trained;
    if (refused) {
      if (auto marked = talk.mark("refused"); !marked)
        return marked;
      return talk.bye();
    }
  }
  if (auto marked = mark_whole_argument(talk); !marked)
    return marked;
  if (auto marked = talk.mark("buckets-reduced"); !marked)
    return marked;
  // Where somebody else's keeps what it accumulates is its own.
  if (!cell.option("accumulate").empty() && !cell.of_subject) {
    if (auto done = unsynchronised_step(talk, *training, steps); !done)
      return done;
  }
  if (cell.option("unwrapped") == "on") {
    if (auto done = unwrapped_step(talk, *training, steps); !done)
      return done;
  }
  return talk.bye();
}

}  // namespace lockstep
