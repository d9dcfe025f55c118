#include "checkers/watch/watch_coverage.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "harness/history/watched_values.h"

namespace lockstep::checkers {
namespace {

/// Of the time of the program, what watching took after its first steps.
double share_of_time(const WatchedValues& values) {
  const std::uint64_t span = values.steady_until_ns > values.steady_since_ns
                                 ? values.steady_until_ns - values.steady_since_ns
                                 : 0;
  return span == 0 ? 0 : static_cast<double>(values.steady_ns) / static_cast<double>(span);
}

}  // namespace

WatchCoverage watch_coverage(const Run& run) {
  WatchCoverage coverage;
  coverage.asked = run.plan.options.count("watch") > 0;
  const WatchedValues* least = nullptr;  // Of the rank that was watched least.
  double share = 0;
  std::set<std::string> unseen;
  for (const Process& process : run.processes) {
    if (process.watched == nullptr)
      continue;
    coverage.asked = true;
    if (least == nullptr || process.watched->watched < least->watched)
      least = process.watched.get();
    share = std::max(share, share_of_time(*process.watched));
    unseen.insert(process.watched->unseen.begin(), process.watched->unseen.end());
  }
  coverage.why_nothing = least == nullptr ? "no rank could be watched"
                         : least->steps == 0
                             ? "no optimizer stepped parameters of a DistributedDataParallel"
                             : "no step was watched on all ranks of a group";
  if (!unseen.empty())
    coverage.not_seen = fmt::format("; not seen: {}", fmt::join(unseen, "; "));
  coverage.why_nothing += coverage.not_seen;
  if (least == nullptr)
    return coverage;
  coverage.text = fmt::format("watched {} of {} steps", least->watched, least->steps);
  if (share > 0)
    coverage.text += fmt::format(", {:.1f} % of the time from step 17 on", 100 * share);
  if (least->dropped > 0)
    coverage.text += fmt::format(", {} records found no room", least->dropped);
  return coverage;
}

}  // namespace lockstep::checkers
