#include "scenarios/steps.h"

#include <fmt/format.h>

#include <algorithm>

#include "harness/history/tensor_file.h"
#include "scenarios/reference_plan.h"

namespace lockstep {
namespace {

using protocol::Json;
namespace fs = std::filesystem;

std::string file_dtype(const std::string& dtype) {
  if (dtype == "float32")
    return "F32";
  if (dtype == "bfloat16")
    return "BF16";
  return "F64";
}

Result<std::vector<std::int64_t>> shape_of(const Json& fields, const char* name) {
  const auto at = fields.find(name);
  if (at == fields.end() || !at->is_array())
    return Error{Error::Kind::kHost,
                 fmt::format("the answer to `model` has no \"{}\" (shape of a row)", name), ""};
  std::vector<std::int64_t> shape;
  for (const Json& extent : *at) {
    if (!extent.is_number_integer())
      return Error{Error::Kind::kHost, fmt::format("\"{}\" is not a list of integers", name), ""};
    shape.push_back(extent.get<std::int64_t>());
  }
  return shape;
}

RankSet live_ranks(const Conversation& talk, const StepPlan& plan) {
  return plan.live.empty() ? RankSet::all(talk.world_size()) : plan.live;
}

Result<void> observe_state(Conversation& talk, Training& training, const RankSet& ranks,
                           std::int64_t step, const std::string& phase, const Json& which) {
  const auto path = [&](Rank rank) {
    return talk.tensor_path(fmt::format("s{}-{}-rank{}", step, phase, rank.value));
  };
  const auto answers = talk.ask_ranks(ranks, [&](Rank rank) {
    return Json{{"message", "state"}, {"which", which}, {"out", path(rank).string()}};
  });
  if (!answers)
    return answers.error();
  training.state.resize(static_cast<std::size_t>(talk.world_size()));
  for (const Rank rank : ranks) {
    training.state[static_cast<std::size_t>(rank.value)] = path(rank);
    if (auto seen = talk.observe(path(rank), {.rank = rank, .step = step, .phase = phase}); !seen)
      return seen;
  }
  return {};
}

void remember_model(Conversation& talk, const Json& fields) {
  const auto parameters = fields.find("parameters");
  if (parameters == fields.end() || !parameters->is_array())
    return;
  for (const Json& parameter : *parameters) {
    if (parameter.is_object() && parameter.value("requires_grad", true) &&
        parameter.value("tied_to", Json()).is_null())
      talk.plan().parameters.emplace_back(parameter.value("name", ""),
                                          parameter.value("numel", std::int64_t{0}));
  }
}

fs::path batch_path(const Conversation& talk, const StepPlan& plan, Rank rank, std::int64_t micro) {
  return talk.tensor_path(fmt::format("s{}-batch{}-rank{}", plan.step, micro, rank.value));
}

Result<void> write_batch(const Conversation& talk, const Training& training, const StepPlan& plan,
                         Rank rank, std::int64_t micro) {
  const auto r = static_cast<std::size_t>(rank.value);
  Batch batch = draw_batch(
      training.shape, plan.rows[r], plan.values, plan.scale,
      mix_seed({talk.cell().seed, static_cast<std::uint64_t>(plan.step),
                static_cast<std::uint64_t>(rank.value), static_cast<std::uint64_t>(micro)}));
  if (!plan.x.empty())
    batch.x = plan.x[r];
  for (double& value : batch.x)
    value += plan.offsets.empty() || (plan.offset_first && micro > 0) ? 0 : plan.offsets[r];
  const auto with_rows = [&](std::vector<std::int64_t> shape) {
    shape.insert(shape.begin(), batch.rows);
    return shape;
  };
  const std::string dtype = file_dtype(talk.cell().dtype);
  std::vector<history::TensorData> tensors{
      history::make_tensor("x", dtype, with_rows(training.shape.x), batch.x),
      history::make_tensor("y", dtype, with_rows(training.shape.y), batch.y)};
  if (plan.penalty) {
    const PenaltyPoints chosen = penalty_points(batch, plan.penalty->kind);
    const bool by_row = plan.penalty->kind != "dragan";
    tensors.push_back(
        history::make_tensor("points", dtype, with_rows(training.shape.x), chosen.points));
    tensors.push_back(history::make_tensor(
        "shares", dtype, with_rows(by_row ? std::vector<std::int64_t>{} : training.shape.x),
        chosen.shares));
  }
  return history::write_tensors(batch_path(talk, plan, rank, micro).string(), tensors);
}

// Fields that say more than that it is a step.
void add_extras(const StepPlan& plan, double penalty_factor, Json& request) {
  if (plan.penalty)
    request["penalty"] = {{"kind", plan.penalty->kind},
                          {"weight", plan.penalty->weight * penalty_factor}};
  if (plan.argument)
    request["argument"] = *plan.argument;
}

Json step_request(const Conversation& talk, const StepPlan& plan, Rank rank, std::int64_t micro,
                  const fs::path& out) {
  const bool last = micro + 1 == plan.micro_batches;
  Json request{{"message", "step"},
               {"step", plan.step},
               {"batch", batch_path(talk, plan, rank, micro).string()},
               {"out", out.string()},
               {"sync", plan.sync && last},
               {"grad", plan.grad},
               {"train", plan.train},
               {"backward", plan.grad},
               {"zero_grad", micro == 0},
               {"optimize", plan.optimize && plan.grad && last},
               {"loss", plan.loss},
               {"forwards", plan.forwards},
               {"must_refuse", talk.cell().option("refuses") == "step"}};
  if (plan.memory)
    request["memory"] = true;
  if (plan.unjoined)
    request["unjoined"] = true;
  add_extras(plan, 1, request);
  return request;
}

Json init_request(const Conversation& talk, std::int32_t rank, std::int32_t world,
                  const char* rendezvous, const std::string& device) {
  return Json{{"message", "init"},
              {"rank", rank},
              {"world", world},
              {"backend", device == "cuda" ? "nccl" : "gloo"},
              {"device", device},
              {"dtype", talk.cell().dtype},
              {"seed", talk.cell().seed},
              {"timeout_s", 0},
              {"rendezvous", (talk.paths().scratch / rendezvous).string()}};
}

/// Of a subject that does not say that it makes its ranks start alike, and has changed nothing on
/// any of them: that is the caller's, who does it.
bool starts_as_it_was(const Case& cell, const Conversation::Answers& wrapped) {
  return cell.of_subject && cell.option("initial") != "own" &&
         std::all_of(wrapped.begin(), wrapped.end(), [](const protocol::Answer& answer) {
           const Json contract = answer.fields.value("contract", Json::object());
           return !answer.fields.value("changed", true) && !contract.contains("initial");
         });
}

}  // namespace

bool all_refused(const Conversation::Answers& answers) {
  return std::all_of(answers.begin(), answers.end(), [](const protocol::Answer& answer) {
    return answer.outcome == protocol::Answer::Outcome::kRefused;
  });
}

Json wrap_options(const Case& cell) {
  Json options = Json::object();
  for (const auto& [name, value] : cell.options) {
    if (value == "on" || value == "off")
      options[name] = value == "on";
    else if (!value.empty() && value.find_first_not_of("0123456789") == std::string::npos)
      options[name] = std::stoull(value);
    else
      options[name] = value;
  }
  return options;
}

void remember_contract(Conversation& talk, const protocol::Answer& answer) {
  const Json contract = answer.fields.value("contract", Json::object());
  for (const auto& [name, value] : contract.items()) {
    if (value.is_string())
      talk.plan().contract[name] = value.get<std::string>();
  }
}

Result<Training> begin(Conversation& talk, const std::string& model,
                       const std::function<Result<void>()>& introduced) {
  const Case& cell = talk.cell();
  Training training;
  training.model = model;
  Json hello{{"message", "hello"}, {"protocol", protocol::kVersion}};
  const auto hosts = talk.ask_ranks([&](Rank) { return hello; });
  if (!hosts)
    return hosts.error();
  if (auto done = introduced(); !done)
    return done.error();
  talk.plan().versions["torch"] = hosts->front().fields.value("torch", "unknown");
  talk.plan().versions["backend"] = cell.device == "cuda" ? "nccl" : "gloo";
  if (auto answers = talk.ask_ranks([&](Rank rank) {
        return init_request(talk, rank.value, cell.world_size, "rendezvous", cell.device);
      });
      !answers)
    return answers.error();
  const auto models = talk.ask_ranks([&](Rank) {
    return Json{{"message", "model"}, {"name", model}, {"file", nullptr}};
  });
  if (!models)
    return models.error();
  remember_model(talk, models->front().fields);
  auto x = shape_of(models->front().fields, "x");
  auto y = shape_of(models->front().fields, "y");
  if (!x || !y)
    return x ? y.error() : x.error();
  training.shape = {*x, *y};
  const RankSet everyone = RankSet::all(talk.world_size());
  if (auto seen = observe_state(talk, training, everyone, 0, "before", {"params", "buffers"});
      !seen)
    return seen.error();
  const fs::path authority =
      training.state.front();  // Rank 0's values are everybody's after wrapping.

  const auto wrapped = talk.ask_ranks([&](Rank) {
    return Json{{"message", "wrap"},
                {"implementation", cell.implementation},
                {"options", wrap_options(cell)},
                {"must_refuse", cell.option("refuses") == "wrap"}};
  });
  if (!wrapped)
    return wrapped.error();
  training.refused = all_refused(*wrapped);
  if (training.refused)
    return training;
  remember_contract(talk, wrapped->front());
  if (starts_as_it_was(cell, *wrapped)) {
    talk.plan().contract["initial"] = "caller";
    if (auto loaded = talk.ask_ranks([&](Rank) {
          return Json{{"message", "load"}, {"file", authority.string()}};
        });
        !loaded)
      return loaded.error();
  }
  training.contract = talk.plan().contract;
  if (auto seen = observe_state(talk, training, everyone, 0, "initial", {"params", "buffers"});
      !seen)
    return seen.error();

  Json reference_init = init_request(talk, 0, 1, "reference", "cpu");
  reference_init["dtype"] = "float64";
  for (const Json& request :
       {hello, reference_init,
        Json{{"message", "model"}, {"name", model}, {"file", authority.string()}}}) {
    if (auto answer = talk.ask_reference(request); !answer)
      return answer.error();
  }
  return training;
}

Result<void> reference_step(Conversation& talk, const Training& training, const StepPlan& plan) {
  const RankSet live = live_ranks(talk, plan);
  for (const Rank rank : live) {
    for (std::int64_t micro = 0; micro < plan.micro_batches; ++micro) {
      if (auto written = write_batch(talk, training, plan, rank, micro); !written)
        return written;
    }
  }
  // Every step starts from the state that the ranks have then: one step is compared, not a long
  // free run.
  const auto first = static_cast<std::size_t>(live.begin()->value);
  if (auto loaded = talk.ask_reference({{"message", "model"},
                                        {"name", training.model},
                                        {"file", training.state[first].string()}});
      !loaded)
    return loaded.error();
  int number = 0;
  const auto batch_file = [&](Rank rank, std::int64_t micro) {
    return batch_path(talk, plan, rank, micro).string();
  };
  for (const Weighing& how : weighings(talk.cell(), training, plan)) {
    const fs::path out = talk.tensor_path(fmt::format("s{}-reference{}", plan.step, number++));
    Json request{{"message", "reference"},
                 {"out", out.string()},
                 {"dtype", how.dtype},
                 {"widen", how.widen},
                 {"train", plan.train},
                 {"grad", plan.grad},
                 {"forwards", forwards_of(talk.cell(), training, plan, how, batch_file)}};
    add_extras(plan, how.penalty_factor, request);
    auto answer = talk.ask_reference(std::move(request));
    if (!answer)
      return answer.error();
    if (auto seen = talk.observe(out, {.role = Role::kReference,
                                       .rank = how.only_for,
                                       .step = plan.step,
                                       .phase = "after_backward",
                                       .variant = how.variant});
        !seen)
      return seen;
  }
  return {};
}

Result<void> train_step(Conversation& talk, Training& training, const StepPlan& plan,
                        bool* refused) {
  const RankSet live = live_ranks(talk, plan);
  for (std::int64_t micro = 0; micro < plan.micro_batches; ++micro) {
    const auto out = [&](Rank rank) {
      return talk.tensor_path(fmt::format("s{}-step{}-rank{}", plan.step, micro, rank.value));
    };
    for (const Rank rank : live) {
      if (auto written = write_batch(talk, training, plan, rank, micro); !written)
        return written;
    }
    const auto answers = talk.ask_ranks(
        live, [&](Rank rank) { return step_request(talk, plan, rank, micro, out(rank)); });
    if (!answers)
      return answers.error();
    if (all_refused(*answers)) {
      if (refused)
        *refused = true;
      return {};
    }
    if (!plan.observed)
      return {};
    for (const Rank rank : live) {
      if (auto seen = talk.observe(out(rank), {.rank = rank,
                                               .step = plan.step,
                                               .phase = fmt::format("micro/{}", micro),
                                               .unsynced = plan.buffers_unsynced || micro > 0});
          !seen)
        return seen;
    }
  }
  return observe_state(talk, training, live, plan.step, "after_backward",
                       {"params", "grads", "buffers"});
}

Result<void> observe_all(Conversation& talk, Training& training, std::int64_t step,
                         const std::string& phase) {
  return observe_state(talk, training, RankSet::all(talk.world_size()), step, phase,
                       {"params", "buffers"});
}

}  // namespace lockstep
