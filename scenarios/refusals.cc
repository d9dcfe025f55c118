#include "scenarios/refusals.h"

#include <algorithm>
#include <iterator>
#include <string_view>

#include "harness/history/tensor_file.h"
#include "scenarios/steps.h"
#include "scenarios/subject_cells.h"

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
                              {"graph", "yes,yes,no"},     {"one_row", "training"}};
  std::vector<Case> cells;
  for (const Unfit& unfit : kUnfit)
    cells.push_back(cell_of(
        "ddp", 3, unfit.how,
        {{"model", "bn_rows"}, {"sync_bn", "on"}, {"refuses", "step"}, {"naming", unfit.naming}}));
  // By the conversion, for nobody would call the layer that it puts in the place of the old one.
  for (const char* where : {"member", "itself"})
    cells.push_back(cell_of(
        "ddp", 2, where,
        {{"model", "bn_rows"}, {"sync_bn", "converted"}, {"refuses", "step"}, {"naming", where}}));
  return cells;
}

// By the second of two forwards: it would put rank 0's buffers into what the first one's backward
// reads. Not all that it reads has changed, nor is all that has changed read.
std::vector<Case> overwritten_buffers(const char* implementation) {
  std::vector<Case> cells;
  for (const auto& [model, naming] : {std::pair("gated", "'mask'"), std::pair("scaled", "'scale'"),
                                      std::pair("sliced", "'scale'")})
    cells.push_back(cell_of(
        implementation, 2, "overwritten",
        {{"model", model}, {"broadcast_buffers", "on"}, {"refuses", "step"}, {"naming", naming}}));
  return cells;
}

// By the next forward: the backward before it has left a parameter out, so nothing was averaged.
Case unfinished_reduction(const char* implementation) {
  const bool ours = std::string_view(implementation) == "bucketed_ddp";
  return cell_of(implementation, 3, "unfinished",
                 {{"model", "mixed"},
                  {"refuses", "step"},
                  {"naming", ours ? "'unused'" : "grad for rank 1: unused"}});
}

// By the caller of data parallel: not only what the first replica raises, and not that another one
// waited in vain for it.
std::vector<Case> failing_replicas(const char* implementation) {
  const std::map<std::string, std::string> plain{
      {"model", "mlp"}, {"replicas", "3"}, {"refuses", "step"}, {"naming", "fault"}};
  std::vector<Case> cells;
  for (const char* failing : {"0", "1", "2"}) {
    std::map<std::string, std::string> options = plain;
    options["failing"] = failing;
    if (std::string_view(failing) != "0") {
      options["model"] = "bn_rows";
      options["sync_bn"] = "on";
    }
    cells.push_back(cell_of(implementation, 1, "replica", std::move(options)));
  }
  for (const auto& [failing, naming] :
       {std::pair("0", "replica 1 on"), std::pair("2", "2 ended before exchange")})
    cells.push_back(cell_of(implementation, 1, "exchange",
                            {{"model", "bn_rows"},
                             {"failing", failing},
                             {"replicas", "3"},
                             {"sync_bn", "on"},
                             {"refuses", "step"},
                             {"naming", naming}}));
  return cells;
}

// Modules and devices that data parallelism in one process has no use for.
std::vector<Case> unfit_replicas(const char* implementation) {
  struct Kind {
    const char* how{};
    const char* refuses{};
    const char* naming{};
  };
  constexpr Kind kKinds[] = {
      {"devices", "wrap", "device"},        {"alone", "wrap", "replica"},
      {"parameter", "step", "parameter"},   {"buffer", "step", "buffer"},
      {"copy", "step", "is to be made of"}, {"buffers", "step", "buffers, the module"}};
  std::vector<Case> cells;
  for (const Kind& kind : kKinds)
    cells.push_back(cell_of(implementation, 1, kind.how,
                            {{"model", "conv_bn"},
                             {"replicas", "2"},
                             {"refuses", kind.refuses},
                             {"naming", kind.naming}}));
  return cells;
}

// Replicas whose outputs have no common form: a tensor beside a tuple, a tuple that is shorter. And
// two arguments of a module that takes one, or that split into other numbers of parts.
std::vector<Case> unlike_outputs() {
  std::vector<Case> cells{cell_of(
      "dp", 1, "no_call",
      {{"model", "mlp"}, {"replicas", "2"}, {"refuses", "step"}, {"naming", "Module::call"}})};
  for (const char* unfit : {"rows", "rows_in_dict"})
    cells.push_back(
        cell_of("dp", 1, unfit,
                {{"model", "mlp"}, {"replicas", "2"}, {"refuses", "step"}, {"naming", "scatter"}}));
  for (const char* unfit : {"first_tensor", "second_tensor", "shorter", "numbers"})
    cells.push_back(
        cell_of("dp", 1, unfit,
                {{"model", "mlp"}, {"replicas", "2"}, {"refuses", "step"}, {"naming", "gather"}}));
  return cells;
}

std::vector<Case> samplers() {
  struct Kind {
    const char* sampler{};
    Unfit unfit{};
  };
  constexpr Kind kKinds[] = {{"distributed", {"rank", "rank"}},
                             {"distributed", {"world", "rank"}},
                             {"distributed", {"length", "length"}},
                             {"distributed", {"batch", "batch"}},
                             {"infinite", {"rank", "rank"}},
                             {"distributed_bucket", {"rank", "rank"}},
                             {"distributed_bucket", {"batch", "batch"}},
                             {"distributed_bucket", {"bounds", "boundaries"}},
                             {"distributed_bucket", {"order", "ascending"}},
                             {"distributed_bucket", {"last_order", "ascending"}},
                             {"distributed_bucket", {"outside", "outside"}}};
  std::vector<Case> cells;
  for (const Kind& kind : kKinds)
    cells.push_back(cell_of(kind.sampler, 2, kind.unfit.how,
                            {{"refuses", "epoch"}, {"naming", kind.unfit.naming}}));
  cells.push_back(cell_of("repeated_augmentation", 2, "repeats",
                          {{"refuses", "epoch"}, {"naming", "repeats"}, {"repeats", "0"}}));
  return cells;
}

// Joins that cannot be: a second one at the same time, one of a static graph.
std::vector<Case> joins() {
  const auto refused = [](const char* implementation, const char* unfit,
                          std::map<std::string, std::string> options) {
    options.insert({{"model", "mlp"}, {"join", "initial"}, {"refuses", "wrap"}});
    return cell_of(implementation, 2, unfit, std::move(options));
  };
  return {refused("ddp", "joined", {{"naming", "another Join"}}),
          refused("bucketed_ddp", "joined", {{"naming", "another Join"}}),
          refused("ddp", "static_join", {{"static_graph", "on"}, {"naming", "static graph"}})};
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

// Three items, one in each of two buckets and one at the boundary between.
Result<void> unfit_epoch(Conversation& talk, const Case& cell) {
  const auto hosts = talk.ask_ranks([](Rank) {
    return protocol::Json{{"message", "hello"}, {"protocol", protocol::kVersion}};
  });
  if (!hosts)
    return hosts.error();
  talk.plan().versions["torch"] = hosts->front().fields.value("torch", "unknown");
  const auto file = talk.tensor_path("dataset");
  const auto numbers = [](const char* name, const std::vector<double>& values) {
    return history::make_tensor(std::string("dataset/") + name, "I64",
                                {static_cast<std::int64_t>(values.size())}, values);
  };
  if (auto written =
          history::write_tensors(file.string(), {numbers("length", {3}), numbers("batch_size", {2}),
                                                 numbers("item_lengths", {12, 20, 28}),
                                                 numbers("boundaries", {10, 20, 30})});
      !written)
    return written;
  const auto answers = talk.ask_ranks([&](Rank rank) {
    return protocol::Json{{"message", "epoch"},       {"sampler", cell.implementation},
                          {"dataset", file.string()}, {"epoch", 0},
                          {"rank", rank.value},       {"world", cell.world_size},
                          {"seed", cell.seed},        {"options", wrap_options(cell)},
                          {"must_refuse", true},      {"out", talk.tensor_path("epoch").string()}};
  });
  if (!answers)
    return answers.error();
  if (all_refused(*answers)) {
    if (auto marked = talk.mark("refused"); !marked)
      return marked;
  }
  return talk.bye();
}

Result<void> unfit_step(Conversation& talk, Training& training, const Case& cell, bool& refused) {
  const std::string unfit = cell.option("unfit");
  StepPlan plan{.rows = {4, 2, 3}, .loss = "sum"};
  if (unfit == "one_row")
    plan.rows = {1, 0, 0};
  if (unfit == "overwritten")
    plan.forwards = 2;
  if (cell.world_size == 1)
    plan.rows = {6};
  constexpr std::string_view kOfCalls[] = {
      "first_tensor", "second_tensor", "shorter", "numbers", "no_call", "rows", "rows_in_dict"};
  if (std::find(std::begin(kOfCalls), std::end(kOfCalls), unfit) != std::end(kOfCalls))
    plan.argument = 2.5;
  if (unfit == "replica") {
    if (auto asked = talk.ask_rank(
            Rank{0},
            {{"message", "fault"}, {"kind", "raise"}, {"at", "replica/" + cell.option("failing")}});
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
    for (Case& cell : overwritten_buffers(implementation))
      cells.push_back(std::move(cell));
  }
  cells.push_back(cell_of(
      "bucketed_ddp", 2, "static",
      {{"model", "mlp"}, {"static_graph", "on"}, {"refuses", "wrap"}, {"naming", "static_graph"}}));
  const auto add = [&](std::vector<Case> more) {
    std::move(more.begin(), more.end(), std::back_inserter(cells));
  };
  for (const char* implementation : {"dp", "balanced_dp"}) {
    add(failing_replicas(implementation));
    add(unfit_replicas(implementation));
  }
  cells.push_back(cell_of(
      "balanced_dp", 1, "target",
      {{"model", "mlp"}, {"replicas", "2"}, {"refuses", "step"}, {"naming", "the target has"}}));
  add(unlike_outputs());
  add(joins());
  add(normalisations());
  add(samplers());
  return cells;
}

// What else is refused depends on how an implementation is built.
std::vector<Case> RefusedInputs::cells(const Subject& subject) const {
  std::vector<Case> cells;
  if (subject.kind != "ddp")
    return cells;
  for (Case& cell : modules_that_differ("ddp"))
    cells.push_back(subject_cell(std::move(cell), subject));
  return cells;
}

Result<void> RefusedInputs::converse(Conversation& talk, const Case& cell) const {
  // One that raises on a single rank leaves the others waiting for it.
  if (cell.of_subject)
    talk.answers_within(kSubjectLimit);
  if (cell.option("refuses") == "epoch")
    return unfit_epoch(talk, cell);
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
