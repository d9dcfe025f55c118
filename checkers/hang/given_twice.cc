#include "checkers/hang/given_twice.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <vector>

#include "checkers/hang/rendezvous.h"
#include "harness/history/hosts.h"
#include "harness/model/group_view.h"
#include "harness/model/stack_patterns.h"

namespace lockstep::checkers {
namespace {

struct Claimant {
  std::int32_t pid{};
  std::uint64_t from_ns{}, until_ns{};
};

bool raised_while_joining(const Run& run, std::int32_t pid) {
  return std::any_of(run.raised.begin(), run.raised.end(), [&](const Raised& each) {
    return each.pid == pid && are_of_joining(each.raised_at.frames);
  });
}

/// Of its main thread, where it was in init_process_group as of the last look; else null.
const StackSample* joins(const Run& run, std::int32_t pid, std::uint64_t cutoff_ns) {
  const StackSample* last = nullptr;
  for (const StackSample& stack : run.stacks) {
    if (stack.pid == pid && stack.tid == pid && stack.at_ns <= cutoff_ns)
      last = &stack;
  }
  return last != nullptr && are_of_joining(last->frames) ? last : nullptr;
}

/// For good, as far as one process can tell.
bool failed_or_waits(const Run& run, std::int32_t pid) {
  if (has_ended(run, pid))
    return raised_while_joining(run, pid);
  const StackSample* const last = joins(run, pid, kNeverNs);
  return last != nullptr && lasted_ns(run, *last, [](const StackSample& stack) {
                              return are_of_joining(stack.frames);
                            }) >= kLongJoiningNs;
}

/// That went to join, and to be this rank; by time.
std::vector<Claimant> claimants_of(const Run& run, Rank rank, std::uint64_t cutoff_ns) {
  std::vector<Claimant> claimants;
  for (const ProcessStart& start : run.starts) {
    if (start.role != Role::kRank || start.rank != rank)
      continue;
    if (!raised_while_joining(run, start.pid) && joins(run, start.pid, cutoff_ns) == nullptr)
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
  std::vector<std::string> told;
  for (const Rank rank : ranks_of(run)) {
    const std::vector<Claimant> claimants = claimants_of(run, rank, cutoff_ns);
    if (pid_of(run, rank) != 0)
      none.erase(rank);
    const bool together = claimants.size() > 1 && claimants[1].from_ns <= claimants[0].until_ns;
    if (!together)
      continue;
    std::vector<std::string> pids;
    for (const Claimant& claimant : claimants)
      pids.push_back(history::words_of_pid(claimant.pid));
    finding.culprits.insert(rank);
    finding.at_ns = std::min(finding.at_ns, claimants[0].from_ns);  // Before what came of it.
    told.push_back(finding
                       .tell(EvidenceKind::kProcess, {rank}, "rank {} is there {} times: {}",
                             rank.value, pids.size(), fmt::join(pids, " and "))
                       .text);
  }
  if (finding.culprits.empty())
    return std::nullopt;
  finding.affected = ranks_of(run).minus(finding.culprits);
  finding.headline =
      fmt::format("several processes were given one RANK: {}{}", fmt::join(told, "; "),
                  none.empty() ? "" : fmt::format("; nobody is {}", words(none)));
  finding.cause = "whatever starts the ranks gave several of them one RANK";
  return finding;
}

std::optional<std::string> ranks_that_nobody_can_meet(const Run& run) {
  const std::optional<Finding> twice = rank_given_twice(run, kNeverNs);
  if (!twice)
    return std::nullopt;
  const Claimant first = claimants_of(run, *twice->culprits.begin(), kNeverNs).front();
  const auto told = std::find_if(run.starts.begin(), run.starts.end(),
                                 [&](const auto& start) { return start.pid == first.pid; });
  std::int32_t started = 0;
  for (const ProcessStart& start : run.starts) {
    if (start.parent != told->parent || start.meets_at != told->meets_at)
      continue;
    ++started;
    if (!failed_or_waits(run, start.pid))
      return std::nullopt;
  }
  if (told->meets_at.empty() || started != told->world_size)
    return std::nullopt;
  return twice->headline;
}

}  // namespace lockstep::checkers
