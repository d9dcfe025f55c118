#include "checkers/watch/loaded_data.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "checkers/watch/dealt_shares.h"
#include "checkers/watch/parted.h"
#include "checkers/watch/passes.h"
#include "checkers/watch/watch_coverage.h"
#include "harness/model/coverage.h"
#include "harness/model/group_view.h"

namespace lockstep::checkers {
namespace {

constexpr std::size_t kReductionsMin = 3;
constexpr std::size_t kBatchesMin = 2;
constexpr std::uint64_t kSamplesMin = 8;  // Fewer come in one order by chance.

// --- All ranks read the same

bool is_of_replica_of(const Member& member, const WatchedHandedIn& handed) {
  return handed.site != 0 && handed.site < member.process->sites.size() &&
         is_of_replica(member.process->sites[handed.site]);
}

/// At every reduction of a replica's gradients that was looked at, and there are enough of them,
/// all members of the group handed in the same.
std::size_t same_handed_in(const GroupView& group) {
  std::map<std::uint64_t, std::vector<const WatchedHandedIn*>> places;
  for (const Member& member : group.members) {
    if (member.process->watched == nullptr)
      return 0;
    for (const WatchedHandedIn& handed : member.process->watched->handed_in) {
      if (handed.group == member.group && is_of_replica_of(member, handed))
        places[handed.position].push_back(&handed);
    }
  }
  std::size_t same = 0;
  for (const auto& place : places) {
    const std::vector<const WatchedHandedIn*>& handed = place.second;
    if (handed.size() != group.members.size())
      continue;
    const bool equal = std::all_of(handed.begin(), handed.end(), [&](const auto* one) {
      return one->value.digest == handed.front()->value.digest &&
             one->numel == handed.front()->numel;
    });
    if (!equal)
      return 0;
    same += handed.front()->value.norm > 0 ? 1 : 0;
  }
  return same;
}

/// Where no indices are known, one batch that comes again and again is made for a measurement.
bool is_constant(const WatchedEpoch& epoch) {
  return !epoch.has(history::kIndexed) && epoch.digests[0] == epoch.digests[1];
}

/// The same indices where they are known, and the same data behind them: these are no files of the
/// rank's own.
bool read_the_same(const ByRank& loop) {
  const WatchedEpoch& first = *loop.begin()->second;
  const std::size_t looked_at = std::min<std::size_t>(first.batches, history::kWatchBatches);
  return looked_at >= kBatchesMin && all_are(loop, history::kTrained) && !is_constant(first) &&
         std::all_of(first.digests.begin(),
                     first.digests.begin() + static_cast<std::ptrdiff_t>(looked_at),
                     [](std::uint64_t digest) { return digest != 0; }) &&
         all_equal(loop, [](const WatchedEpoch& epoch) { return epoch.has(history::kIndexed); }) &&
         all_equal(loop, [](const WatchedEpoch& epoch) { return epoch.order; }) &&
         all_equal(loop, [](const WatchedEpoch& epoch) { return epoch.digests; });
}

std::string what_was_read(const ByRank& loop, std::uint32_t pass) {
  const WatchedEpoch& first = *loop.begin()->second;
  if (first.has(history::kIndexed))
    return fmt::format(
        "{} samples by {} in pass {} over the loader: the same indices and the same batches",
        first.received, first.sampler, pass);
  return fmt::format("the first {} batches in pass {} over the loader were the same",
                     std::min<std::uint64_t>(first.batches, history::kWatchBatches), pass);
}

std::optional<Finding> overlap(const Job& job, const Loops& loops) {
  const auto loop = std::find_if(loops.begin(), loops.end(),
                                 [](const auto& each) { return read_the_same(each.second); });
  if (loop == loops.end())
    return std::nullopt;
  const bool indexed = all_are(loop->second, history::kIndexed);
  for (const GroupView& group : job.groups()) {
    if (group.members.size() < 2)
      continue;
    const std::size_t same = same_handed_in(group);
    if (same < kReductionsMin)
      continue;
    Finding finding = finding_at(loop->second, Code::kShardsOverlap,
                                 indexed ? Severity::kError : Severity::kWarning);
    finding.headline =
        fmt::format("{} read the same samples in the same order, and computed the same",
                    words(finding.affected));
    finding.group = group.label();
    finding.tell(EvidenceKind::kSample, finding.affected, "{}",
                 what_was_read(loop->second, loop->first.second));
    finding.tell(EvidenceKind::kValue, finding.affected,
                 "what they handed to the reduction of gradients was bit-identical at all {} "
                 "that were looked at",
                 same);
    finding.cause = all_are(loop->second, history::kShares)
                        ? "its sampler makes shares, and gives all ranks the same one"
                        : "the loader makes no shares for ranks: each rank does the whole work "
                          "again";
    return finding;
  }
  return std::nullopt;
}

// --- The order of the epoch before

bool is_shuffled_training(const ByRank& loop) {
  return all_are(loop, history::kEnded | history::kIndexed | history::kTrained | history::kShares |
                           history::kShuffles) &&
         std::all_of(loop.begin(), loop.end(),
                     [](const auto& one) { return one.second->received >= kSamplesMin; });
}

/// Some whole pass over that loader had another order: its sampler is told the epoch, and who makes
/// two passes in one epoch means it.
bool was_ever_another(const Loops& loops, std::uint32_t loader, const ByRank& loop) {
  return std::any_of(loops.begin(), loops.end(), [&](const auto& each) {
    return each.first.first == loader && is_shuffled_training(each.second) &&
           std::any_of(loop.begin(), loop.end(), [&](const auto& one) {
             return each.second.at(one.first)->order != one.second->order;
           });
  });
}

std::optional<Finding> not_reshuffled(const Loops& loops) {
  for (auto at = loops.begin(); at != loops.end(); ++at) {
    const auto before = loops.find({at->first.first, at->first.second - 1});
    if (before == loops.end() || !is_shuffled_training(at->second) ||
        !is_shuffled_training(before->second))
      continue;
    const bool same = std::all_of(at->second.begin(), at->second.end(), [&](const auto& one) {
      return before->second.at(one.first)->order == one.second->order;
    });
    if (!same)
      continue;
    if (was_ever_another(loops, at->first.first, at->second))
      continue;
    Finding finding = finding_at(at->second, Code::kNotReshuffled, Severity::kNote);
    finding.headline = fmt::format("pass {} over a loader that shuffles has the order of pass {}",
                                   at->first.second, before->first.second);
    finding.tell(EvidenceKind::kSample, finding.affected,
                 "{} samples a rank, by {}, in the same order on {}",
                 at->second.begin()->second->received, sampler_of(at->second),
                 words(finding.affected));
    finding.cause = "the sampler was not told the epoch: set_epoch() before each pass";
    return finding;
  }
  return std::nullopt;
}

}  // namespace

Verdict LoadedData::check(const Job& job) const {
  Verdict verdict{.name = std::string(name())};
  const Loops loops = loops_of(job.run());
  verdict.outcome = Outcome::kSkipped;
  const WatchCoverage coverage = watch_coverage(job.run());
  if (!coverage.asked) {
    verdict.reason = "values were not watched";
    return verdict;
  }
  if (loops.empty() || job.run().plan.world_size < 2) {
    verdict.reason = "no pass over a DataLoader was seen on all ranks" + coverage.not_seen;
    return verdict;
  }
  verdict.examined["passes"] = loops.size();
  verdict.outcome = Outcome::kPass;
  const std::optional<Finding> same = overlap(job, loops);
  verdict.findings = findings_of_shares(loops);
  if (same)  // Who takes whose share is said with it.
    std::erase_if(verdict.findings,
                  [](const Finding& finding) { return finding.code == Code::kShardsOverlap; });
  for (std::optional<Finding> found : {same, not_reshuffled(loops)}) {
    if (!found)
      continue;
    if (found->severity == Severity::kError)
      verdict.outcome = Outcome::kFail;
    verdict.findings.push_back(std::move(*found));
  }
  return verdict;
}

}  // namespace lockstep::checkers
