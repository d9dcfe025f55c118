#include "harness/model/observed_values.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>

namespace lockstep {
namespace {

std::string_view phase_kind(std::string_view phase) { return phase.substr(0, phase.find('/')); }

}  // namespace

std::int32_t phase_index(std::string_view phase) {
  const std::size_t slash = phase.find('/');
  std::int32_t index = 0;
  if (slash != std::string_view::npos)
    std::from_chars(phase.data() + slash + 1, phase.data() + phase.size(), index);
  return std::clamp(index, 0, 9999);
}

std::int32_t phase_order(std::string_view phase) {
  const std::string_view kind = phase_kind(phase);
  if (kind == "before")
    return 0;
  if (kind == "initial")
    return 1;
  if (kind == "before_forward")
    return 10 + 10 * phase_index(phase);
  if (kind == "forward_entry" || kind == "forward_entry_unsynced")
    return 11 + 10 * phase_index(phase);
  if (kind == "after_forward")
    return 12 + 10 * phase_index(phase);
  if (kind == "after_backward")
    return 200'000 + phase_index(phase);
  if (kind == "after_step")
    return 300'000;
  return 400'000;
}

bool is_phase(std::string_view phase, std::string_view kind) { return phase_kind(phase) == kind; }

std::string_view kind_of(std::string_view name) { return name.substr(0, name.find('/')); }

std::string_view tensor_name(std::string_view name) {
  const std::size_t slash = name.find('/');
  return slash == std::string_view::npos ? name : name.substr(slash + 1);
}

std::vector<Sighting> sightings(const Run& run, const std::vector<std::string_view>& kinds) {
  std::map<std::tuple<std::int64_t, std::int32_t, std::string, std::string, std::size_t>, Sighting>
      all;
  std::map<std::tuple<std::int64_t, std::string, std::string, Rank>, std::size_t> seen;
  for (const Observation& observation : run.observations) {
    if (observation.role != Role::kRank || !observation.rank ||
        std::find(kinds.begin(), kinds.end(), kind_of(observation.name)) == kinds.end())
      continue;
    // Seen again in the same phase (micro-batches): the next occasion.
    const std::size_t occasion =
        seen[{observation.step, observation.phase, observation.name, *observation.rank}]++;
    Sighting& sighting = all[{observation.step, phase_order(observation.phase), observation.phase,
                              observation.name, occasion}];
    sighting.occasion = occasion;
    sighting.name = observation.name;
    sighting.phase = observation.phase;
    sighting.step = observation.step;
    sighting.by_rank[*observation.rank] = &observation;
  }
  std::vector<Sighting> ordered;
  ordered.reserve(all.size());
  for (auto& [key, sighting] : all)
    ordered.push_back(std::move(sighting));
  return ordered;
}

Result<Tensor> values_of(const Run& run, const Observation& observation) {
  if (!run.tensor)
    return Error{Error::Kind::kMalformedHistory, "the values of tensors cannot be read", ""};
  return run.tensor(observation);
}

std::optional<double> largest_difference(const Run& run, const Observation& a,
                                         const Observation& b) {
  if (!run.tensor || a.shape != b.shape)
    return std::nullopt;
  const Result<Tensor> x = run.tensor(a);
  const Result<Tensor> y = run.tensor(b);
  if (!x || !y || x->values.size() != y->values.size())
    return std::nullopt;
  double largest = 0;
  for (std::size_t i = 0; i < x->values.size(); ++i) {
    const double difference = std::abs(x->values[i] - y->values[i]);
    if (std::isnan(difference))
      return std::numeric_limits<double>::infinity();
    largest = std::max(largest, difference);
  }
  return largest;
}

}  // namespace lockstep
