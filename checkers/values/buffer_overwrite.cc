#include "checkers/values/buffer_overwrite.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "harness/model/coverage.h"
#include "harness/model/observed_values.h"

namespace lockstep::checkers {
namespace {

constexpr std::size_t kNamesMax = 16;

using Place = std::tuple<Rank, std::int64_t, std::string>;  // Rank, step, name.

void add(const Run& run, const Observation& left, const Observation& kept, Finding& finding) {
  const std::string name(tensor_name(kept.name));
  if (finding.names.empty()) {
    finding.code = Code::kBufferDiffers;
    finding.step = kept.step;
    finding.at_ns = kept.at_ns;
  } else if (finding.step != kept.step) {
    ++finding.consequences;
    return;
  }
  finding.affected.insert(*kept.rank);
  if (std::find(finding.names.begin(), finding.names.end(), name) == finding.names.end() &&
      finding.names.size() < kNamesMax)
    finding.names.push_back(name);
  const auto difference = largest_difference(run, left, kept);
  if (finding.evidence.size() < kNamesMax)
    finding.tell(EvidenceKind::kValue, {*kept.rank},
                 "{}: rank {} holds another value than its forward has left{}", name,
                 kept.rank->value, difference ? fmt::format(", by up to {:.6g}", *difference) : "");
}

}  // namespace

Verdict BufferOverwrite::check(const Job& job) const {
  const Run& run = job.run();
  Verdict verdict{.name = std::string(name())};
  if (run.plan.declared("buffers").empty())
    return verdict.skip("nothing is declared about buffers");
  // That no other forward came after the last one on record is an absence.
  if (!run.journal_complete)
    return verdict.because(why_open(run));
  std::map<Place, const Observation*> left;  // By the last forward so far.
  Finding finding;
  for (const Observation& observation : run.observations) {
    if (observation.role != Role::kRank || !observation.rank ||
        kind_of(observation.name) != "buffer")
      continue;
    const Place place{*observation.rank, observation.step, observation.name};
    if (is_phase(observation.phase, "after_forward")) {
      left[place] = &observation;
    } else if (is_phase(observation.phase, "after_backward") && left.count(place) > 0) {
      ++verdict.examined["buffers"];
      if (!identical(*left.at(place), observation))
        add(run, *left.at(place), observation, finding);
    }
  }
  if (!finding.names.empty()) {
    finding.headline = fmt::format(
        "{}{} not what the forward of step {} has left", finding.names.front(),
        finding.names.size() == 1 ? " is"
                                  : fmt::format(" and {} more are", finding.names.size() - 1),
        *finding.step);
    verdict.fail(std::move(finding));
  } else if (verdict.examined.empty()) {
    verdict.skip("no forward's buffers were observed");
  } else {
    verdict.outcome = Outcome::kPass;
  }
  return verdict;
}

}  // namespace lockstep::checkers
