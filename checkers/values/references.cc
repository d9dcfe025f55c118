#include "checkers/values/references.h"

#include "harness/model/observed_values.h"

namespace lockstep::checkers {
namespace {

bool is_right(const std::string& variant) { return variant.empty() || variant == "x64"; }
bool is_permutation(const std::string& variant) { return variant.rfind("x1/", 0) == 0; }

}  // namespace

bool is_ignored(const Plan& plan, std::string_view name) {
  const auto ignored = plan.options.find("ignored");
  return ignored != plan.options.end() && tensor_name(name) == ignored->second;
}

Subjects subjects_of(const Run& run, const std::function<bool(const Observation&)>& asked) {
  Subjects subjects;
  for (const Observation& observation : run.observations) {
    if (!asked(observation))
      continue;
    Subject& subject =
        subjects[{observation.step, phase_order(observation.phase), observation.name}];
    subject.step = observation.step;
    subject.phase = observation.phase;
    subject.name = observation.name;
    if (observation.role == Role::kRank && observation.rank)
      subject.actual[*observation.rank] = &observation;
    else if (observation.role != Role::kReference)
      continue;
    else if (is_right(observation.variant) && observation.rank)
      subject.right_by_rank[*observation.rank] = &observation;
    else if (is_right(observation.variant))
      subject.right = &observation;
    else if (is_permutation(observation.variant))
      subject.permutations.push_back(&observation);
    else
      subject.mistakes[observation.variant].push_back(&observation);
  }
  for (auto& [key, subject] : subjects) {
    const auto own = subject.mistakes.find("local");
    if (own == subject.mistakes.end() || !is_ignored(run.plan, subject.name))
      continue;
    subject.right = nullptr;
    for (const Observation* local : own->second)
      subject.right_by_rank[*local->rank] = local;
    subject.mistakes.clear();
  }
  return subjects;
}

}  // namespace lockstep::checkers
