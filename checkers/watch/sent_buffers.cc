#include "checkers/watch/sent_buffers.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "checkers/watch/parted.h"
#include "checkers/watch/watch_coverage.h"
#include "harness/model/watched_series.h"

namespace lockstep::checkers {
namespace {

constexpr std::size_t kSentMin = 3;   // Forwards, of which one would do.
constexpr std::size_t kStepsMin = 4;  // At which statistics are apart.
constexpr std::size_t kNamesMax = 8;

using Key = std::pair<const GroupView*, std::uint32_t>;  // Of a replica.

struct OfReplica {
  std::vector<const WatchedSeries*> sent{};   ///< That were not equal after they were sent.
  std::vector<const WatchedSeries*> apart{};  ///< Running statistics, before a step.
  bool is_sent{};                             ///< Its forwards send buffers.
};

bool is_apart(const WatchedSight& sight) { return !sight.values_equal(); }

std::size_t times_apart(const WatchedSeries& series) {
  return static_cast<std::size_t>(
      std::count_if(series.sights.begin(), series.sights.end(), is_apart));
}

bool is_statistic(std::string_view name) {
  return name.ends_with("running_mean") || name.ends_with("running_var");
}

bool is_hooked(const WatchedSeries& series) {
  return std::any_of(series.sights.begin(), series.sights.end(),
                     [](const WatchedSight& sight) { return sight.any_has(history::kHooked); });
}

std::map<Key, OfReplica> by_replica(const std::vector<WatchedSeries>& all) {
  std::map<Key, OfReplica> replicas;
  for (const WatchedSeries& series : all) {
    OfReplica& replica = replicas[{series.group, series.replica}];
    const std::size_t apart = times_apart(series);
    if (series.optimizer == history::kAfterBroadcast) {
      replica.is_sent = true;
      // Equal once, they are sent; what is never equal after it is not.
      if (apart >= kSentMin && apart == series.sights.size() && !series.tensor->ignored &&
          series.tensor->at_start && !is_hooked(series))
        replica.sent.push_back(&series);
    } else if (apart >= kStepsMin && is_apart(series.sights.back()) && !series.tensor->ignored &&
               is_statistic(series.tensor->name)) {
      replica.is_sent = replica.is_sent || series.tensor->at_start;
      replica.apart.push_back(&series);
    }
  }
  return replicas;
}

Finding finding_of(const std::vector<const WatchedSeries*>& all, Severity severity) {
  const WatchedSeries& first = *all.front();
  Finding finding{
      .code = Code::kBufferDiffers, .severity = severity, .confidence = Confidence::kCertain};
  const WatchedSight& sight = *std::find_if(first.sights.begin(), first.sights.end(), is_apart);
  finding.step = static_cast<std::int64_t>(sight.step);
  finding.at_ns = sight.at_ns;
  finding.group = first.group->label();
  for (const auto& [rank, entry] : sight.by_rank)
    finding.affected.insert(rank);
  for (const WatchedSeries* const series : all) {
    if (finding.names.size() < kNamesMax &&
        (finding.names.empty() || finding.names.back() != series->tensor->name))
      finding.names.push_back(series->tensor->name);
  }
  add_site_of_module(first.group->members.front(), *first.tensor, finding);
  return finding;
}

/// Of several optimizers, each sees the same buffer.
std::string first_and_more(const std::vector<const WatchedSeries*>& all) {
  std::set<std::string_view> names;
  for (const WatchedSeries* const series : all)
    names.insert(series->tensor->name);
  return names.size() > 1
             ? fmt::format("{} (and {} more)", all.front()->tensor->name, names.size() - 1)
             : all.front()->tensor->name;
}

/// The program may keep a buffer of its own out of what it sends: nobody says that it must not.
Finding not_sent(const std::vector<const WatchedSeries*>& all) {
  Finding finding = finding_of(all, Severity::kWarning);
  finding.headline = fmt::format("{} differs after each forward that sent the buffers to all",
                                 first_and_more(all));
  finding.tell(EvidenceKind::kValue, finding.affected,
               "looked at after {} of them, and apart each time", all.front()->sights.size());
  return finding;
}

/// By the program itself, now and then.
bool may_be_averaged(const OfReplica& replica) {
  return std::any_of(replica.apart.begin(), replica.apart.end(), [](const WatchedSeries* series) {
    return may_have_averaged(*series, As::kAnything, /*since_ns=*/0);
  });
}

Finding statistics(const OfReplica& replica) {
  Finding finding = finding_of(replica.apart, Severity::kNote);
  finding.headline = fmt::format("{} is each rank's own", first_and_more(replica.apart));
  finding.tell(EvidenceKind::kValue, finding.affected, "apart before {} watched steps",
               times_apart(*replica.apart.front()));
  finding.cause =
      replica.is_sent
          ? "the running statistics of one rank are sent to all, and those of the others are "
            "lost: a BatchNorm takes those of all data as SyncBatchNorm"
          : "nothing sends them: a checkpoint of one rank has that rank's, and evaluation "
            "differs between ranks";
  return finding;
}

}  // namespace

Verdict SentBuffers::check(const Job& job) const {
  Verdict verdict{.name = std::string(name()), .outcome = Outcome::kSkipped};
  const std::vector<WatchedSeries> all = watched_buffers(job.groups());
  verdict.examined["buffers"] = all.size();
  if (!watch_coverage(job.run()).asked) {
    verdict.reason = "values were not watched";
    return verdict;
  }
  if (all.empty()) {
    verdict.reason = "no buffer of a DistributedDataParallel was seen on all ranks";
    return verdict;
  }
  verdict.outcome = Outcome::kPass;
  for (const auto& [key, replica] : by_replica(all)) {
    if (!replica.sent.empty())
      verdict.findings.push_back(not_sent(replica.sent));
    const bool are_own = replica.is_sent || !may_be_averaged(replica);
    if (!replica.apart.empty() && are_own)
      verdict.findings.push_back(statistics(replica));
  }
  return verdict;
}

}  // namespace lockstep::checkers
