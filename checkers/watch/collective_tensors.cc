#include "checkers/watch/collective_tensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "checkers/watch/parted.h"
#include "checkers/watch/tensors_with_gaps.h"
#include "checkers/watch/watch_coverage.h"
#include "harness/model/call_site.h"
#include "harness/model/watched_series.h"

namespace lockstep::checkers {
namespace {

// Now and then the change and the end of the call may be seen the wrong way round.
constexpr std::size_t kTimesMin = 3;

using Key = std::tuple<const Process*, history::WatchMisuse, std::uint32_t, std::uint32_t>;
using Misuses = std::vector<const WatchedMisuse*>;

bool is_known(const Process& process, std::uint32_t site) {
  return site != 0 && site < process.sites.size();
}

/// Of the calls of a line.
std::size_t looked_at(const Process& process, std::uint32_t site) {
  if (process.dropped > 0)
    return history::kWatchCallsOfLine;
  const auto calls = std::count_if(process.collectives.begin(), process.collectives.end(),
                                   [&](const Collective& call) { return call.site == site; });
  return std::min<std::size_t>(history::kWatchCallsOfLine, static_cast<std::size_t>(calls));
}

/// Whatever a parameter of this size was stepped by, afterwards it was the same on all ranks: the
/// rank that had the result sends what it made of it.
bool is_made_good(const WatchedMisuse& misuse, const std::vector<WatchedSeries>& all) {
  std::size_t equal = 0;
  for (const WatchedSeries& series : all) {
    if (series.tensor->numel != misuse.numel)
      continue;
    for (const WatchedSight& sight : series.sights) {
      if (sight.at_ns <= misuse.at_ns)
        continue;
      if (!sight.values_equal())
        return false;
      ++equal;
    }
  }
  return equal > 0;
}

std::map<Key, Misuses> by_line(const Run& run, const std::vector<WatchedSeries>& series) {
  std::map<Key, Misuses> all;
  for (const Process& process : run.processes) {
    if (!process.rank || process.watched == nullptr)
      continue;
    for (const WatchedMisuse& misuse : process.watched->misuses) {
      // What DistributedDataParallel does with its own buckets is its own affair.
      if (is_known(process, misuse.site) && !is_of_replica(process.sites[misuse.site]) &&
          !(misuse.what == history::WatchMisuse::kUndefined && misuse.later == 0 &&
            is_made_good(misuse, series)))
        all[{&process, misuse.what, misuse.site, misuse.later}].push_back(&misuse);
    }
  }
  std::erase_if(all, [](const auto& entry) {
    const auto& [process, what, site, later] = entry.first;
    return what == history::WatchMisuse::kTouched &&
           (entry.second.size() < kTimesMin || 2 * entry.second.size() < looked_at(*process, site));
  });
  return all;
}

void add_site(const Process& process, std::uint32_t site, const char* role, Finding& finding) {
  if (!is_known(process, site))
    return;
  if (auto line = site_of(*process.rank, process.sites[site].frames, role))
    finding.sites.push_back(std::move(*line));
}

Finding told(const Key& key, const Misuses& misuses) {
  const auto& [process, what, site, later] = key;
  const bool touched = what == history::WatchMisuse::kTouched;
  Finding finding{.code = touched ? Code::kTouchedInFlight : Code::kUndefinedResult,
                  .severity = Severity::kWarning,
                  .confidence = Confidence::kCertain};
  finding.at_ns = misuses.front()->at_ns;
  finding.culprits.insert(*process->rank);
  if (touched) {
    finding.headline =
        fmt::format("rank {} changed a tensor while an asynchronous collective used it, {} times",
                    process->rank->value, misuses.size());
    finding.tell(EvidenceKind::kValue, finding.culprits,
                 "{} elements, changed in place after the call and before it was done",
                 misuses.front()->numel);
    finding.cause = "nothing waits between the call and the change";
  } else {
    finding.headline =
        fmt::format("rank {} hands on to {} what a reduce left there, which is no result",
                    process->rank->value, later == 0 ? "an optimizer" : "a collective");
    finding.tell(EvidenceKind::kValue, finding.culprits,
                 "{} elements: not what the rank handed in, and not changed since the reduce",
                 misuses.front()->numel);
    finding.cause = "only the root of a reduce has its result";
  }
  add_site(*process, site, "culprit", finding);
  add_site(*process, later, "used", finding);
  return finding;
}

}  // namespace

Verdict CollectiveTensors::check(const Job& job) const {
  Verdict verdict{.name = std::string(name()), .outcome = Outcome::kSkipped};
  verdict.findings = tensors_with_gaps(job.run());
  if (!watch_coverage(job.run()).asked) {
    verdict.reason = "values were not watched";
    if (!verdict.findings.empty())
      verdict.outcome = Outcome::kPass;  // A warning, as the others are.
    return verdict;
  }
  verdict.outcome = Outcome::kPass;
  for (const auto& [key, misuses] : by_line(job.run(), watched_series(job.groups())))
    verdict.findings.push_back(told(key, misuses));
  return verdict;
}

}  // namespace lockstep::checkers
