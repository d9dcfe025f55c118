#include "scenarios/buffer_broadcast.h"

#include <algorithm>

#include "scenarios/replica_cells.h"
#include "scenarios/steps.h"

namespace lockstep {
namespace {

// The well-known experiment: zeros on even ranks, ones on odd ones, so that every rank's batch
// statistics differ.
std::vector<std::vector<double>> zeros_and_ones(std::int32_t world, std::int64_t rows,
                                                const BatchShape& shape) {
  std::int64_t numel = rows;
  for (const std::int64_t extent : shape.x)
    numel *= extent;
  std::vector<std::vector<double>> x;
  for (std::int32_t rank = 0; rank < world; ++rank)
    x.emplace_back(static_cast<std::size_t>(numel), rank % 2 == 0 ? 0.0 : 1.0);
  return x;
}

Case cell_of(std::int32_t world, std::map<std::string, std::string> options,
             std::vector<std::string> marks, const char* implementation = "ddp") {
  Case cell{.scenario = "buffer-broadcast", .implementation = implementation, .world_size = world};
  cell.options = std::move(options);
  cell.expected_marks = std::move(marks);
  cell.required_checks = {"collective-order", "deadlock", "process-end", "replica-equality"};
  if (cell.option("model") == "conv_bn")
    cell.required_checks.push_back("gradient-reference");
  if (cell.option("sync_bn") == "on")
    cell.required_checks.push_back("batch-statistics");
  cell.id = case_id(cell);
  return cell;
}

// Whether ranks held different buffers in `phase` of `step`, as the observations say.
bool buffers_differ(const std::vector<Observation>& observations, std::int64_t step,
                    const std::string& phase) {
  std::map<std::string, std::string> first;
  for (const Observation& seen : observations) {
    if (seen.role != Role::kRank || seen.step != step || seen.phase != phase ||
        seen.name.rfind("buffer/", 0) != 0)
      continue;
    const auto [at, inserted] = first.emplace(seen.name, seen.digest);
    if (!inserted && at->second != seen.digest)
      return true;
  }
  return false;
}

// Whether a forward of `step` left other buffers than it found.
bool buffers_change(const std::vector<Observation>& observations, std::int64_t step) {
  std::map<std::string, std::string> found;
  for (const Observation& seen : observations) {
    if (seen.role != Role::kRank || seen.step != step)
      continue;
    if (seen.phase == "forward_entry/0")
      found[seen.name] = seen.digest;
  }
  return std::any_of(observations.begin(), observations.end(), [&](const Observation& seen) {
    return seen.role == Role::kRank && seen.step == step && seen.phase == "after_forward/0" &&
           found.count(seen.name) > 0 && found[seen.name] != seen.digest;
  });
}

// The steps of the experiment. A forward under no_grad or no_sync leaves the next forward
// unsynchronised.
std::vector<StepPlan> steps_of(const Case& cell, const BatchShape& shape) {
  const auto plain = [&](std::int64_t step) {
    StepPlan plan;
    plan.step = step;
    plan.rows.assign(static_cast<std::size_t>(cell.world_size), 4);
    if (replicas_of(cell) > 0)
      plan.rows = {replica_rows(cell)};
    else
      plan.x = zeros_and_ones(cell.world_size, 4, shape);
    plan.buffers_unsynced =
        cell.option("broadcast_buffers") == "off" && cell.option("sync_bn") != "on";
    return plan;
  };
  std::vector<StepPlan> steps{plain(0), plain(1)};
  const std::string hole = cell.option("hole");
  if (hole.empty())
    return steps;
  StepPlan cause = plain(2);
  (hole == "no_grad" ? cause.grad : cause.sync) = false;
  cause.optimize = false;
  StepPlan unsynced = plain(3);
  unsynced.buffers_unsynced = true;
  steps.insert(steps.end(), {cause, unsynced, plain(4)});
  return steps;
}

Result<void> mark_what_happened(Conversation& talk, const StepPlan& plan) {
  const std::vector<Observation>& seen = talk.observations();
  if (talk.cell().option("sync_bn") == "on") {
    if (buffers_differ(seen, plan.step, "after_forward/0"))
      return {};
    return talk.mark("buffers-equal-after-forward");
  }
  if (buffers_differ(seen, plan.step, "after_forward/0")) {
    if (auto marked = talk.mark("buffers-differ-after-forward"); !marked)
      return marked;
  }
  if (replicas_of(talk.cell()) > 0 && buffers_change(seen, plan.step)) {
    if (auto marked = talk.mark("buffers-change-in-forward"); !marked)
      return marked;
  }
  if (buffers_differ(seen, plan.step, "forward_entry_unsynced/0"))
    return talk.mark("buffers-differ-at-entry");
  return {};
}

Result<void> two_forwards(Conversation& talk, Training& training) {
  StepPlan plan;
  plan.rows.assign(static_cast<std::size_t>(talk.world_size()), 4);
  plan.forwards = 2;
  plan.buffers_unsynced = talk.cell().option("broadcast_buffers") == "off";
  plan.train = talk.cell().option("mode") != "eval";
  if (auto computed = reference_step(talk, training, plan); !computed)
    return computed;
  bool refused = false;
  if (auto trained = train_step(talk, training, plan, &refused); !trained)
    return trained;
  return talk.mark(refused ? "refused" : "two-forwards");
}

}  // namespace

std::string_view BufferBroadcast::question() const {
  return "whose buffers does a forward begin with, and do two forwards before a backward stay "
         "right?";
}

std::vector<Case> BufferBroadcast::cells() const {
  std::vector<Case> cells;
  const std::string after = "buffers-differ-after-forward";
  const std::string entry = "buffers-differ-at-entry";
  for (const std::int32_t world : {2, 3, 5}) {
    const char* const model = world == 5 ? "ema" : "conv_bn";  // Counts what its rank has seen.
    cells.push_back(cell_of(
        world, {{"model", model}, {"optimizer", "adam"}, {"broadcast_buffers", "on"}}, {after}));
    cells.push_back(
        cell_of(world, {{"model", "conv_bn"}, {"optimizer", "adam"}, {"broadcast_buffers", "off"}},
                {after, entry}));
    // The third run: what a broadcast only copies from rank 0 is here of all ranks' rows.
    cells.push_back(cell_of(world,
                            {{"model", "conv_bn"},
                             {"optimizer", "adam"},
                             {"broadcast_buffers", "off"},
                             {"broadcast_initial_buffers", "on"},
                             {"sync_bn", "on"}},
                            {"buffers-equal-after-forward"}));
    for (const char* hole : {"no_grad", "no_sync"}) {
      cells.push_back(cell_of(world,
                              {{"model", "conv_bn"},
                               {"optimizer", "adam"},
                               {"broadcast_buffers", "on"},
                               {"hole", hole}},
                              {after, entry}));
    }
  }
  for (const char* model : {"conv_bn", "ema"}) {
    const bool refuses =
        std::string_view(model) == "ema";  // Its graph reads the buffer; BatchNorm's does not.
    cells.push_back(cell_of(3, {{"model", model}, {"broadcast_buffers", "on"}, {"forwards", "2"}},
                            {refuses ? "refused" : "two-forwards"}));
    cells.push_back(cell_of(3, {{"model", model}, {"broadcast_buffers", "off"}, {"forwards", "2"}},
                            {"two-forwards"}));
  }
  // What nobody has changed since the last broadcast may be broadcast again.
  for (const char* implementation : {"ddp", "bucketed_ddp"})
    cells.push_back(cell_of(
        2, {{"model", "gated"}, {"broadcast_buffers", "on"}, {"forwards", "2"}, {"mode", "eval"}},
        {"two-forwards"}, implementation));
  for (Case& cell : replica_buffer_cells())
    cells.push_back(std::move(cell));
  const auto bucketed = [&](std::int32_t world, std::map<std::string, std::string> options,
                            std::vector<std::string> marks) {
    options.insert({{"model", "conv_bn"}, {"optimizer", "adam"}, {"broadcast_buffers", "on"}});
    cells.push_back(cell_of(world, std::move(options), std::move(marks), "bucketed_ddp"));
  };
  bucketed(2, {}, {after});
  bucketed(3, {{"ignored", "bn.running_mean"}}, {after});
  bucketed(5, {{"broadcast_buffers", "off"}}, {after, entry});
  bucketed(3, {{"hole", "no_grad"}}, {after, entry});
  bucketed(3, {{"hole", "no_sync"}}, {after, entry});
  bucketed(3, {{"model", "ema"}, {"forwards", "2"}}, {"refused"});
  return cells;
}

Result<void> BufferBroadcast::converse(Conversation& talk, const Case& cell) const {
  Result<Training> training = begin(talk, cell.option("model", "conv_bn"));
  if (!training)
    return training.error();
  if (cell.option("forwards") == "2") {
    if (auto done = two_forwards(talk, *training); !done)
      return done;
    return talk.bye();
  }
  for (const StepPlan& plan : steps_of(cell, training->shape)) {
    if (plan.grad && plan.sync) {
      if (auto computed = reference_step(talk, *training, plan); !computed)
        return computed;
    }
    if (auto trained = train_step(talk, *training, plan); !trained)
      return trained;
    if (auto marked = mark_what_happened(talk, plan); !marked)
      return marked;
  }
  return talk.bye();
}

}  // namespace lockstep
