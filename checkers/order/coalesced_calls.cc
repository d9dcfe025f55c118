#include "checkers/order/coalesced_calls.h"

#include <fmt/format.h>

#include <algorithm>

#include "harness/model/group_view.h"

namespace lockstep::checkers {
namespace {

bool ended_well(const Run& run, const Process& process) {
  return std::any_of(run.ends.begin(), run.ends.end(), [&](const ProcessEnd& end) {
    return end.pid == process.pid && end.exit_status == 0;
  });
}

}  // namespace

std::vector<Finding> calls_set_aside(const Run& run) {
  Finding finding;
  RankSet ranks;
  for (const Rank rank : ranks_of(run)) {
    const Process* const process = current_process(run, rank);
    if (process == nullptr || process->set_aside.empty() || !ended_well(run, *process))
      continue;
    ranks.insert(rank);
    for (const SetAside& calls : process->set_aside) {
      finding.op = calls.op;
      finding.at_ns = std::max(finding.at_ns, calls.at_ns);
      finding.tell_of(EvidenceKind::kCall, {rank}, "{} call{} of {} put aside, and never made",
                      calls.calls, calls.calls == 1 ? "" : "s", calls.op);
    }
  }
  if (ranks.empty())
    return {};
  finding.code = Code::kMissingCall;
  finding.confidence = Confidence::kCertain;
  if (ranks == ranks_of(run))
    finding.affected = ranks;  // All did the same.
  else
    finding.culprits = ranks;
  finding.headline = fmt::format("{} called {}, and PyTorch put the calls aside for ever",
                                 words(ranks), finding.op);
  finding.tell(
      EvidenceKind::kRule, {},
      "an exception left the block of PyTorch's _coalescing_manager: what is called on that group "
      "after it returns at once and does nothing");
  finding.help = "let no exception leave the block, or make a new group after one has";
  return {finding};
}

}  // namespace lockstep::checkers
