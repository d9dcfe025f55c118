#include "checkers/hang/given_twice.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <vector>

#include "checkers/hang/rendezvous.h"
#include "harness/model/group_view.h"

namespace lockstep::checkers {
namespace {

struct Claimant {
  std::int32_t pid{};
  std::uint64_t from_ns{}, until_ns{};
};

/// That went to join, and to be this rank; by time.
std::vector<Claimant> claimants_of(const Run& run, Rank rank, std::uint64_t cutoff_ns) {
  std::vector<Claimant> claimants;
  for (const ProcessStart& start : run.starts) {
    if (start.role != Role::kRank || start.rank != rank)
      continue;
    const StackSample* last = nullptr;
    for (const StackSample& stack : run.stacks) {
      if (stack.pid == start.pid && stack.tid == stack.pid && stack.at_ns <= cutoff_ns)
        last = &stack;
    }
    const bool raised = std::any_of(run.raised.begin(), run.raised.end(), [&](const Raised& each) {
      return each.pid == start.pid && are_of_joining(each.raised_at.frames);
    });
    if (!raised && (last == nullptr || !are_of_joining(last->frames)))
      continue;
    Claimant one{.pid = start.pid, .from_ns = start.at_ns, .until_ns = kNeverNs};
    for (const ProcessEnd& end : run.ends) {
      if (end.pid == start.pid)
        one.until_ns = end.at_ns;
    }
    claimants.push_back(one);
  }
  std::stable_sort(claimants.begin(), claimants.end(),
                   [](const Claimant& a, const Claimant& b) { return a.from_ns < b.from_ns; });
  return claimants;
}

}  // namespace

std::optional<Finding> rank_given_twice(const Run& run, std::uint64_t cutoff_ns) {
  Finding finding{.code = Code::kNeverJoined, .confidence = Confidence::kCertain};
  finding.at_ns = kNeverNs;
  RankSet none = RankSet::all(run.plan.world_size);
  for (const Rank rank : ranks_of(run)) {
    const std::vector<Claimant> claimants = claimants_of(run, rank, cutoff_ns);
    if (pid_of(run, rank) != 0)
      none.erase(rank);
    const bool together = claimants.size() > 1 && claimants[1].from_ns <= claimants[0].until_ns;
    if (!together)
      continue;
    std::vector<std::int32_t> pids;
    for (const Claimant& claimant : claimants)
      pids.push_back(claimant.pid);
    finding.culprits.insert(rank);
    finding.at_ns = std::min(finding.at_ns, claimants[1].from_ns);
    finding.evidence.push_back(fmt::format("rank {} is there {} times: pid {}", rank.value,
                                           pids.size(), fmt::join(pids, " and pid ")));
  }
  if (finding.culprits.empty())
    return std::nullopt;
  finding.affected = ranks_of(run).minus(finding.culprits);
  finding.headline =
      fmt::format("several processes were given one RANK: {}{}", fmt::join(finding.evidence, "; "),
                  none.empty() ? "" : fmt::format("; nobody is {}", words(none)));
  finding.cause = "whatever starts the ranks gave several of them one RANK";
  return finding;
}

}  // namespace lockstep::checkers
