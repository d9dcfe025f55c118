#include "checkers/values/reduced_elements.h"

#include <algorithm>

#include "harness/model/group_view.h"
#include "harness/model/observed_values.h"

namespace lockstep::checkers {
namespace {

bool is_floating(history::DType dtype) {
  return dtype == history::DType::kFloat16 || dtype == history::DType::kBFloat16 ||
         dtype == history::DType::kFloat32 || dtype == history::DType::kFloat64;
}

struct Window {
  std::uint64_t begin_ns{};
  std::uint64_t end_ns{kNeverNs};
};

Window window_of(const Run& run, Rank rank, std::int64_t step) {
  Window window;
  for (const Observation& seen : run.observations) {
    if (seen.role == Role::kRank && seen.rank == rank && seen.step == step &&
        kind_of(seen.name) == "grad")
      window.end_ns = std::min(window.end_ns, seen.at_ns);
  }
  for (const Observation& seen : run.observations) {
    const bool earlier =
        seen.step < step || is_phase(seen.phase, "before") || is_phase(seen.phase, "initial");
    if (seen.role == Role::kRank && seen.rank == rank && earlier && seen.at_ns < window.end_ns)
      window.begin_ns = std::max(window.begin_ns, seen.at_ns);
  }
  return window;
}

}  // namespace

Reduced reduced_elements(const Run& run, std::int64_t step) {
  Reduced reduced;
  const std::vector<GroupView> groups = group_views(run);
  if (groups.empty() || !groups.front().run_is_whole)
    return reduced;
  bool first = true;
  for (const Rank rank : ranks_of(run)) {
    const Window window = window_of(run, rank, step);
    const Process* process = current_process(run, rank);
    if (window.end_ns == kNeverNs || process == nullptr || process->dropped > 0)
      return {};
    std::uint64_t elements = 0;
    for (const Collective& call : process->collectives) {
      const bool reduces =
          call.op == history::Op::kAllReduce || call.op == history::Op::kAllReduceCoalesced;
      if (reduces && is_floating(call.dtype) && call.issued_ns > window.begin_ns &&
          call.issued_ns < window.end_ns)
        elements += call.numel_in;
    }
    if (!first && elements != reduced.elements)
      return {};
    reduced.elements = elements;
    first = false;
  }
  reduced.known = true;
  return reduced;
}

std::uint64_t elements_of(const Plan& plan) {
  std::uint64_t total = 0;
  for (const auto& [name, numel] : plan.parameters)
    total += static_cast<std::uint64_t>(std::max<std::int64_t>(numel, 0));
  return total;
}

bool lacks_exactly(const Plan& plan, const Reduced& reduced,
                   const std::set<std::string>& gradients) {
  std::uint64_t lacking = 0;
  std::size_t found = 0;
  for (const auto& [name, numel] : plan.parameters) {
    if (gradients.count("grad/" + name) > 0) {
      lacking += static_cast<std::uint64_t>(std::max<std::int64_t>(numel, 0));
      ++found;
    }
  }
  return found == gradients.size() && reduced.elements + lacking == elements_of(plan);
}

}  // namespace lockstep::checkers
