#include "checkers/exit/host_gone.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "checkers/exit/rank_left.h"
#include "harness/model/error_patterns.h"
#include "harness/model/failure.h"
#include "harness/model/group_view.h"

namespace lockstep::checkers {
namespace {

constexpr std::size_t kEvidenceMax = 8;
constexpr std::uint64_t kHeardOfEveryNs = 2'000'000'000;

/// An end of one of its ranks on record: it was silent, and its ranks went on.
bool has_told_an_end(const Run& run, const HostSilent& silent) {
  return std::any_of(run.ends.begin(), run.ends.end(), [&](const ProcessEnd& end) {
    return end.role == Role::kRank && end.rank && silent.ranks.contains(*end.rank);
  });
}

/// All failed because another one was gone, which was none of them and not gone long before.
bool may_be_why(const HostSilent& silent, const std::vector<Failure>& failures) {
  return std::all_of(failures.begin(), failures.end(), [&](const Failure& failure) {
    return failure.after_a_peer && !silent.ranks.contains(failure.rank) &&
           failure.at_ns + kHeardOfEveryNs >= silent.since_ns;
  });
}

}  // namespace

std::optional<Finding> host_gone(const Job& job) {
  const Run& run = job.run();
  const std::vector<Failure>& failures = job.failures();
  const bool was_closed = std::any_of(failures.begin(), failures.end(), [](const Failure& failure) {
    return says(failure.exception, Says::kClosedByPeer);
  });
  Finding finding;
  std::string hosts;
  for (const HostSilent& silent : run.silent_hosts) {
    if (!was_closed || has_told_an_end(run, silent) || !may_be_why(silent, failures))
      continue;
    const bool is_known = std::all_of(silent.ranks.begin(), silent.ranks.end(),
                                      [&](Rank rank) { return finding.culprits.contains(rank); });
    if (is_known)
      continue;
    hosts += (hosts.empty() ? "" : " and ") + silent.host;
    for (const Rank rank : silent.ranks)
      finding.culprits.insert(rank);
  }
  if (hosts.empty())
    return std::nullopt;
  const Failure& first = failures.front();
  finding.code = Code::kRankDied;
  finding.at_ns = first.at_ns;
  finding.confidence = Confidence::kLikely;
  finding.headline = fmt::format("{} is gone, and with it {}", hosts, words(finding.culprits));
  finding.affected = ranks_of(run).minus(finding.culprits);
  finding.tell(EvidenceKind::kEnd, finding.culprits,
               "its lockstep, which tells of itself every second, told nothing more, and did not "
               "say that it ends");
  finding.cause = "the host went down, or everything of the job on it was killed";
  finding.consequences = failures.size();
  for (const Failure& failure : failures) {
    if (finding.evidence.size() < kEvidenceMax)
      finding.tell(kind_of(failure), {failure.rank}, "rank {} {} after it", failure.rank.value,
                   in_words(failure));
  }
  for (const Rank rank : finding.culprits) {
    if (finding.evidence.size() < kEvidenceMax && current_process(run, rank) != nullptr)
      tell_last_call(run, rank, "was", finding);
  }
  return finding;
}

}  // namespace lockstep::checkers
