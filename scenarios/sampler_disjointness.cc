#include "scenarios/sampler_disjointness.h"

#include <fmt/format.h>

#include <algorithm>

#include "harness/history/tensor_file.h"
#include "scenarios/batches.h"
#include "scenarios/steps.h"
#include "scenarios/subject_cells.h"

namespace lockstep {
namespace {

using protocol::Json;

constexpr std::int64_t kEpochs = 3;
constexpr const char* kBatchSize = "4";
constexpr std::int64_t kBatchesOfAStream = 20;
// Between the second and the third, and after the fourth, the first dataset has no items.
constexpr std::int64_t kBoundaries[] = {10, 20, 30, 40, 50};
// Every boundary, and what is next to it on either side.
constexpr std::int64_t kAtBoundaries[] = {10, 11, 19, 20, 21, 29, 30, 31, 39, 40, 41, 49, 50};
constexpr std::uint64_t kOtherSeed = 1000003;

struct Dataset {
  std::vector<double> item_lengths{};  ///< One for each sample, whether the sampler asks or not.
  std::uint64_t seed{};
};

// Many samples first, so that chance explains nothing; then a length that no world size divides,
// one that all do, fewer samples than ranks, and none. In the end the first again with another
// seed, so far away that no epoch of it is one of the first seed's.
std::vector<Dataset> datasets_of(const Case& cell) {
  std::vector<std::int64_t> lengths{302, 61, 60, std::max(cell.world_size / 2, 1)};
  if (cell.implementation != "infinite")
    lengths.push_back(0);  // There is no stream of nothing.
  if (cell.of_subject)
    lengths = cell.option("samples") == "few" ? std::vector<std::int64_t>{1, 0}
                                              : std::vector<std::int64_t>{302, 61, 60};
  std::vector<Dataset> datasets;
  for (std::size_t number = 0; number < lengths.size(); ++number) {
    Draw draw(mix_seed({cell.seed, number}));
    Dataset dataset{.seed = number == 1 ? 0 : cell.seed};  // The seed that is most often asked for.
    for (std::int64_t sample = 0; sample < lengths[number]; ++sample) {
      std::int64_t length = draw.integer(10, 50);
      if (number == 0)  // Within the first or the third bucket, often at a boundary.
        length = sample % 2 == 0 ? draw.integer(10, 20) : draw.integer(31, 40);
      else if (static_cast<std::size_t>(sample) < std::size(kAtBoundaries))
        length = kAtBoundaries[sample];
      if (cell.option("drop_outside") == "on" && sample % 9 == 8)
        length = sample % 2 == 0 ? 9 : 51;
      dataset.item_lengths.push_back(static_cast<double>(length));
    }
    datasets.push_back(std::move(dataset));
  }
  if (cell.one_seed || cell.option("samples") == "few")
    return datasets;
  datasets.push_back(datasets.front());
  datasets.back().seed += kOtherSeed;
  return datasets;
}

bool goes_by_length(const Case& cell) {
  return cell.implementation == "distributed_bucket" ||
         (cell.mutant != nullptr && cell.mutant->of == "distributed_bucket");
}

std::filesystem::path dataset_path(const Conversation& talk, std::size_t number) {
  return talk.tensor_path(fmt::format("dataset{}", number));
}

Result<std::string> write_dataset(Conversation& talk, std::size_t number, const Dataset& dataset) {
  const auto samples = static_cast<std::int64_t>(dataset.item_lengths.size());
  const std::int64_t most = talk.cell().implementation == "infinite"
                                ? kBatchesOfAStream
                                : (samples + 1) * talk.world_size() * 2;
  const auto tensor = [](const char* name, const std::vector<double>& values) {
    return history::make_tensor(fmt::format("dataset/{}", name), "I64",
                                {static_cast<std::int64_t>(values.size())}, values);
  };
  std::vector<history::TensorData> tensors{
      tensor("length", {static_cast<double>(samples)}),
      tensor("batch_size", {std::stod(talk.cell().option("batch", kBatchSize))}),
      tensor("batches_max", {static_cast<double>(most)}),
      tensor("seed", {static_cast<double>(dataset.seed)})};
  if (goes_by_length(talk.cell()) || talk.cell().of_subject)
    tensors.push_back(tensor("item_lengths", dataset.item_lengths));
  if (goes_by_length(talk.cell())) {
    std::vector<double> boundaries(std::begin(kBoundaries), std::end(kBoundaries));
    if (talk.cell().option("buckets") == "one")
      boundaries = {boundaries.front(), boundaries.back()};
    tensors.push_back(tensor("boundaries", boundaries));
  }
  const auto path = dataset_path(talk, number);
  if (auto written = history::write_tensors(path.string(), tensors); !written)
    return written.error();
  if (auto seen = talk.observe(
          path, {.role = Role::kReference, .phase = fmt::format("dataset/{}", number)});
      !seen)
    return seen.error();
  return path.string();
}

Result<void> run_epoch(Conversation& talk, const std::string& dataset, std::size_t number,
                       std::int64_t epoch, std::uint64_t seed) {
  const Case& cell = talk.cell();
  const auto out = [&](Rank rank) {
    return talk.tensor_path(fmt::format("dataset{}-epoch{}-rank{}", number, epoch, rank.value));
  };
  const auto answers = talk.ask_ranks([&](Rank rank) {
    return Json{{"message", "epoch"},
                {"sampler", cell.implementation},
                {"dataset", dataset},
                {"epoch", epoch},
                {"rank", rank.value},
                {"world", cell.world_size},
                {"seed", seed},
                {"rendezvous", (talk.paths().scratch / "sampler").string()},
                {"options", wrap_options(cell)},
                {"out", out(rank).string()}};
  });
  if (!answers)
    return answers.error();
  remember_contract(talk, answers->front());
  for (const Rank rank : RankSet::all(cell.world_size)) {
    if (auto seen = talk.observe(
            out(rank), {.rank = rank, .step = epoch, .phase = fmt::format("dataset/{}", number)});
        !seen)
      return seen;
  }
  return {};
}

// What a dataset that all its epochs were taken from had in it.
Result<void> mark_what_happened(Conversation& talk, const Dataset& dataset) {
  const auto world = static_cast<std::size_t>(talk.world_size());
  const std::size_t samples = dataset.item_lengths.size();
  const bool at_boundary =
      std::any_of(dataset.item_lengths.begin(), dataset.item_lengths.end(), [](double length) {
        return length == static_cast<double>(kBoundaries[0]) ||
               length == static_cast<double>(kBoundaries[1]);
      });
  std::vector<const char*> marks;
  if (samples % world != 0)
    marks.push_back("not-divisible");
  if (samples < world)
    marks.push_back("fewer-samples-than-ranks");
  if (goes_by_length(talk.cell()) && at_boundary)
    marks.push_back("items-at-boundaries");
  for (const char* mark : marks) {
    if (auto marked = talk.mark(mark); !marked)
      return marked;
  }
  return {};
}

// An epoch that was used up, of the first dataset and its samplers, is asked for once more: as
// what it gives is observed as a dataset of its own.
Result<void> last_epoch_again(Conversation& talk, const Dataset& dataset, std::size_t number) {
  if (const Result<std::string> seen = write_dataset(talk, number, dataset); !seen)
    return seen.error();
  return run_epoch(talk, dataset_path(talk, 0).string(), number, kEpochs - 1, dataset.seed);
}

Case cell_of(const std::string& sampler, std::int32_t world,
             std::map<std::string, std::string> options = {}) {
  Case cell{.scenario = "sampler-disjointness", .implementation = sampler, .world_size = world};
  cell.options = std::move(options);
  cell.expected_marks = {"not-divisible", "fewer-samples-than-ranks"};
  if (goes_by_length(cell))
    cell.expected_marks.emplace_back("items-at-boundaries");
  cell.required_checks = {"sampler-shards", "process-end"};
  cell.id = case_id(cell);
  return cell;
}

}  // namespace

std::string_view SamplerDisjointness::question() const {
  return "are the samples of all ranks together those that the sampler declares?";
}

std::vector<Case> SamplerDisjointness::cells() const {
  std::vector<Case> cells;
  for (const std::int32_t world : {2, 3, 5}) {
    for (const char* sampler : {"distributed", "distributed_bucket"}) {
      cells.push_back(cell_of(sampler, world));
      cells.push_back(cell_of(sampler, world, {{"drop_last", "on"}}));
    }
    for (const char* sampler : {"distributed_sequential", "strided", "with_replacement",
                                "repeated_augmentation", "infinite"})
      cells.push_back(cell_of(sampler, world));
  }
  cells.push_back(cell_of("distributed", 3, {{"shuffle", "off"}}));
  cells.push_back(cell_of("distributed_bucket", 3, {{"shuffle", "off"}}));
  cells.push_back(cell_of("distributed_bucket", 3, {{"drop_outside", "on"}}));
  cells.push_back(cell_of("distributed_bucket", 2, {{"buckets", "one"}}));
  cells.push_back(cell_of("repeated_augmentation", 2, {{"repeats", "1"}}));
  for (const char* sampler : {"distributed_sequential", "distributed_bucket"})
    cells.push_back(cell_of(sampler, 2, {{"batch", "1"}}));
  return cells;
}

std::vector<std::pair<std::string, std::string>> SamplerDisjointness::not_applicable() const {
  const char* const why = "it is given its samples, and draws none";
  return {{"ddp", why}, {"bucketed_ddp", why}, {"dp", why}, {"balanced_dp", why}};
}

std::vector<Case> SamplerDisjointness::cells(const Subject& subject) const {
  if (subject.kind != "sampler")
    return {};
  std::vector<Case> cells = subject_cells(this->cells(), "distributed", subject);
  for (Case& cell : cells)
    cell.expected_marks = {"not-divisible"};
  Case few = cell_of("distributed", 3, {{"samples", "few"}});
  few.expected_marks = {"fewer-samples-than-ranks"};
  cells.push_back(tried_cell(std::move(few), subject, "fewer samples than ranks, and none"));
  return cells;
}

Result<void> SamplerDisjointness::converse(Conversation& talk, const Case& cell) const {
  const auto introduced = talk.ask_ranks([](Rank) {
    return Json{{"message", "hello"}, {"protocol", protocol::kVersion}};
  });
  if (!introduced)
    return introduced.error();
  talk.plan().versions["torch"] = introduced->front().fields.value("torch", "unknown");
  const std::vector<Dataset> datasets = datasets_of(cell);
  for (std::size_t number = 0; number < datasets.size(); ++number) {
    const Result<std::string> file = write_dataset(talk, number, datasets[number]);
    if (!file)
      return file.error();
    for (std::int64_t epoch = 0; epoch < kEpochs; ++epoch) {
      if (auto run = run_epoch(talk, *file, number, epoch, datasets[number].seed); !run)
        return run;
    }
    if (auto marked = mark_what_happened(talk, datasets[number]); !marked)
      return marked;
  }
  if (!cell.of_subject) {
    if (auto again = last_epoch_again(talk, datasets.front(), datasets.size()); !again)
      return again;
  }
  return talk.bye();
}

}  // namespace lockstep
