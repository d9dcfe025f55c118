#include "scenarios/uneven_batches.h"

#include <algorithm>
#include <charconv>

#include "scenarios/steps.h"

namespace lockstep {
namespace {

using Counts = std::vector<std::int64_t>;

// Of the option "batches": one number for each rank, or two: of the rank `rank` (else the last) the
// second, of all others the first.
Counts counts_of(const Case& cell) {
  Counts listed;
  const std::string text = cell.option("batches");
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('/', at), text.size());
    std::int64_t count = 0;
    std::from_chars(text.data() + at, text.data() + end, count);
    listed.push_back(count);
    at = end + 1;
  }
  if (listed.size() != 2)
    return listed;
  Counts counts(static_cast<std::size_t>(cell.world_size), listed.front());
  counts[static_cast<std::size_t>(
      std::stoi(cell.option("rank", std::to_string(cell.world_size - 1))))] = listed.back();
  return counts;
}

RankSet with_a_batch(const Counts& counts, std::int64_t step) {
  RankSet ranks;
  for (std::size_t rank = 0; rank < counts.size(); ++rank) {
    if (counts[rank] > step)
      ranks.insert(Rank{static_cast<std::int32_t>(rank)});
  }
  return ranks;
}

StepPlan plan_of(const Case& cell, std::int64_t step, const RankSet& live) {
  constexpr std::int64_t kRows[] = {2, 5, 3, 1, 4};
  StepPlan plan;
  plan.step = step;
  for (std::int32_t rank = 0; rank < cell.world_size; ++rank)
    plan.rows.push_back(kRows[rank % 5]);
  plan.live = live;
  plan.micro_batches = std::stoll(cell.option("accumulate", "1"));
  plan.divide_by = cell.option("join") == "active" ? static_cast<double>(live.size())
                                                   : static_cast<double>(cell.world_size);
  plan.buffers_unsynced = cell.option("broadcast_buffers") == "off";
  return plan;
}

Case cell_of(const char* implementation, std::int32_t world,
             std::map<std::string, std::string> options) {
  Case cell{.scenario = "uneven-batches", .implementation = implementation, .world_size = world};
  cell.options = std::move(options);
  const bool throws = cell.option("join") == "throw";
  cell.expected_marks = {throws ? "refused" : "joined"};
  if (cell.option("join") != "disabled")
    cell.expected_marks.emplace_back("ran-out-first");
  cell.required_checks = {"collective-order", "deadlock", "process-end", "replica-equality"};
  // Where a rank has no batch at all, nothing is computed before all refuse.
  const Counts counts = counts_of(cell);
  if (!throws || *std::min_element(counts.begin(), counts.end()) > 0)
    cell.required_checks.emplace_back("gradient-reference");
  cell.id = case_id(cell);
  return cell;
}

// One step of all ranks, who are joined anew for it: what the last join has left must not be in the
// way.
Result<void> another_epoch(Conversation& talk, Training& training, std::int64_t step) {
  const RankSet everyone = RankSet::all(talk.world_size());
  const StepPlan plan = plan_of(talk.cell(), step, everyone);
  if (auto computed = reference_step(talk, training, plan); !computed)
    return computed;
  if (auto trained = train_step(talk, training, plan); !trained)
    return trained;
  for (const Rank rank : everyone) {
    if (auto sent = talk.tell(rank, {{"message", "exhausted"}}); !sent)
      return sent;
  }
  const auto answers = talk.answers_of(everyone);
  return answers ? Result<void>{} : answers.error();
}

// One step of all ranks outside of any join.
Result<void> step_unjoined(Conversation& talk, Training& training, std::int64_t step) {
  StepPlan plan = plan_of(talk.cell(), step, {});
  plan.divide_by = 0;
  plan.unjoined = true;
  if (auto computed = reference_step(talk, training, plan); !computed)
    return computed;
  return train_step(talk, training, plan);
}

// Waits for the ranks that have run out. Joined, all hold the last one's state then; where all
// refuse, at least the same parameters.
Result<void> come_together(Conversation& talk, Training& training, const RankSet& told,
                           std::int64_t step, bool refused) {
  const auto answers = talk.answers_of(told);
  if (!answers)
    return answers.error();
  if (refused && !told.empty() && all_refused(*answers)) {
    if (auto marked = talk.mark("refused"); !marked)
      return marked;
  }
  if (auto seen = observe_all(talk, training, step, refused ? "refused" : "joined"); !seen)
    return seen;
  if (!refused) {
    if (auto marked = talk.mark("joined"); !marked)
      return marked;
  }
  if (talk.cell().option("epochs") == "2") {
    if (auto done = another_epoch(talk, training, step); !done)
      return done;
  }
  if (!refused) {
    if (auto done = step_unjoined(talk, training, step + 1); !done)
      return done;
  }
  return talk.bye();
}

}  // namespace

std::string_view UnevenBatches::question() const {
  return "what happens when a rank runs out of batches before the others?";
}

std::vector<Case> UnevenBatches::cells() const {
  std::vector<Case> cells;
  for (const char* implementation : {"ddp", "bucketed_ddp"}) {
    const auto add = [&](std::int32_t world, const char* batches, const char* join,
                         const char* model = "mlp") {
      std::map<std::string, std::string> options{
          {"model", model}, {"batches", batches}, {"join", join}};
      if (std::string_view(model) == "mlp")
        options["bucket_cap_bytes"] = "512";
      if (std::string_view(model) == "mixed")
        options["find_unused_parameters"] = "on";
      cells.push_back(cell_of(implementation, world, std::move(options)));
    };
    for (const char* join : {"initial", "active"}) {
      add(2, "5/3", join);
      add(2, "0/4", join, "conv_bn");
      add(3, "5/3/4", join, "conv_bn");
    }
    add(2, "11/12", "active");
    cells.push_back(
        cell_of(implementation, 2,
                {{"model", "mlp"}, {"batches", "2/1"}, {"join", "initial"}, {"epochs", "2"}}));
    // Of two micro-batches the first is not reduced, which who shadows it must know.
    cells.push_back(
        cell_of(implementation, 2,
                {{"model", "mlp"}, {"batches", "3/1"}, {"join", "initial"}, {"accumulate", "2"}}));
    cells.push_back(cell_of(
        implementation, 2,
        {{"model", "conv_bn"}, {"batches", "3/1"}, {"join", "initial"}, {"accumulate", "2"}}));
    cells.push_back(cell_of(implementation, 3,
                            {{"model", "mlp"},
                             {"batches", "5/3/4"},
                             {"join", "active"},
                             {"gradient_as_bucket_view", "on"},
                             {"keep_gradients", "on"}}));
    cells.push_back(cell_of(implementation, 3,
                            {{"model", "conv_bn"},
                             {"batches", "2/3/1"},
                             {"join", "initial"},
                             {"broadcast_buffers", "off"}}));
    add(3, "3/0/2", "active", "mixed");
    add(5, "3/4/0/4/2", "initial");
    add(2, "3/3", "disabled");
    add(2, "5/3", "throw", "conv_bn");
    add(3, "2/3/3", "throw");
  }
  return cells;
}

std::vector<std::pair<std::string, std::string>> UnevenBatches::not_applicable() const {
  const char* const why = "one process reads every batch: no other rank can run out";
  return {{"dp", why}, {"balanced_dp", why}};
}

Result<void> UnevenBatches::converse(Conversation& talk, const Case& cell) const {
  const Counts counts = counts_of(cell);
  talk.plan().batches = counts;
  Result<Training> training = begin(talk, cell.option("model", "mlp"));
  if (!training)
    return training.error();
  const RankSet everyone = RankSet::all(cell.world_size);
  RankSet told;
  std::int64_t step = 0;
  for (; true; ++step) {
    const RankSet live = with_a_batch(counts, step);
    for (const Rank rank : everyone.minus(live).minus(told)) {
      if (auto sent = talk.tell(rank, {{"message", "exhausted"}}); !sent)
        return sent;
      told.insert(rank);
    }
    if (live.empty())
      return come_together(talk, *training, told, step, /*refused=*/false);
    const bool uneven = live != everyone;
    const StepPlan plan = plan_of(cell, step, live);
    if (!(uneven && cell.option("join") == "throw")) {
      if (auto computed = reference_step(talk, *training, plan); !computed)
        return computed;
    }
    bool refused = false;
    if (auto trained = train_step(talk, *training, plan, &refused); !trained)
      return trained;
    if (uneven && step == *std::min_element(counts.begin(), counts.end())) {
      if (auto marked = talk.mark("ran-out-first"); !marked)
        return marked;
    }
    if (refused)
      return come_together(talk, *training, told, step, /*refused=*/true);
  }
}

}  // namespace lockstep
