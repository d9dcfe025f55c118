#include "checkers/watch/tensors_with_gaps.h"

#include <fmt/format.h>

#include <map>
#include <tuple>

#include "harness/model/call_site.h"
#include "harness/model/group_view.h"

namespace lockstep::checkers {
namespace {

struct Calls {
  const Process* process{};  ///< Of the first one.
  const Collective* first{};
  std::size_t times{};
  RankSet ranks{};
};

/// By operation and line.
using Places = std::map<std::tuple<history::Op, std::string, std::int32_t>, Calls>;

Places places_of(const Run& run) {
  Places places;
  for (const Process& process : run.processes) {
    if (!process.rank || process.beside)
      continue;
    for (const Collective& call : process.collectives) {
      if (!call.gaps)
        continue;
      const auto site = site_of(process, call, "issued");
      Calls& calls = places[{call.op, site ? site->file : "", site ? site->line : 0}];
      if (calls.first == nullptr || call.issued_ns < calls.first->issued_ns) {
        calls.process = &process;
        calls.first = &call;
      }
      ++calls.times;
      calls.ranks.insert(*process.rank);
    }
  }
  return places;
}

Finding finding_of(const Run& run, const Calls& calls) {
  Finding finding{.code = Code::kTensorWithGaps,
                  .severity = Severity::kWarning,
                  .confidence = Confidence::kCertain};
  finding.at_ns = calls.first->issued_ns;
  finding.affected = calls.ranks;
  const RankSet everyone = RankSet::all(run.plan.world_size);
  finding.headline = fmt::format(
      "{} of a tensor with gaps on {}: Gloo handles its first {} elements in memory, gaps and all",
      history::name_of(calls.first->op),
      calls.ranks == everyone ? "every rank" : words(calls.ranks), calls.first->numel_in);
  finding.tell(EvidenceKind::kValue, calls.ranks,
               "{} {}; what lies between its elements is sent and overwritten, and its last "
               "elements are left as they were",
               calls.times, calls.times == 1 ? "call" : "calls");
  finding.cause = "a view with gaps, as a column or every second element is";
  if (auto site = site_of(*calls.process, *calls.first, "issued"))
    finding.sites.push_back(std::move(*site));
  return finding;
}

}  // namespace

std::vector<Finding> tensors_with_gaps(const Run& run) {
  std::vector<Finding> findings;
  for (const auto& [place, calls] : places_of(run))
    findings.push_back(finding_of(run, calls));
  return findings;
}

}  // namespace lockstep::checkers
