#include "checkers/watch/dealt_shares.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "harness/model/group_view.h"

namespace lockstep::checkers {
namespace {

constexpr std::uint64_t kSamplesMin = 8;  // Fewer are divided by chance.

// --- Whose share it is

/// Of all ranks, in training, by a sampler that makes a share for each.
bool is_dealt_out_to_all(const ByRank& loop) {
  return all_are(loop, history::kTrained | history::kShares) &&
         loop.begin()->second->replicas == loop.size() &&
         all_equal(loop, [](const WatchedEpoch& epoch) { return epoch.share * epoch.replicas; }) &&
         std::all_of(loop.begin(), loop.end(), [](const auto& one) {
           return one.second->share_of > 0 && one.second->received > 0;
         });
}

/// Another share is then nobody's.
std::optional<Finding> share_of_two(const Loops& loops) {
  for (const auto& [number, loop] : loops) {
    if (!is_dealt_out_to_all(loop))
      continue;
    std::map<std::uint32_t, RankSet> takers;
    for (const auto& [rank, epoch] : loop)
      takers[epoch->share_of].insert(rank);
    if (takers.size() == loop.size())
      continue;
    Finding finding = finding_at(loop, Code::kShardsOverlap, Severity::kWarning);
    std::vector<std::string> told;
    std::vector<std::uint32_t> left;
    for (std::uint32_t share = 1; share <= loop.size(); ++share) {
      const auto at = takers.find(share);
      if (at == takers.end())
        left.push_back(share - 1);
      else if (at->second.size() > 1)
        told.push_back(fmt::format("{} take share {}", words(at->second), share - 1));
    }
    finding.headline = fmt::format("of {} shares {}, and nobody takes {}", loop.size(),
                                   fmt::join(told, ", "), fmt::join(left, ", "));
    finding.tell(EvidenceKind::kSample, finding.affected,
                 "pass {} over a loader with {}: num_replicas={}", number.second, sampler_of(loop),
                 loop.size());
    finding.cause = "the sampler is given another rank than that of its process";
    return finding;
  }
  return std::nullopt;
}

/// Shares of different orders overlap. What orders them is seed + epoch.
std::optional<Finding> shuffled_apart(const Loops& loops) {
  for (const auto& [number, loop] : loops) {
    if (!is_dealt_out_to_all(loop) || !all_are(loop, history::kShuffles) ||
        loop.begin()->second->share < kSamplesMin ||
        all_equal(loop, [](const WatchedEpoch& epoch) { return epoch.seed; }))
      continue;
    std::vector<std::uint32_t> seeds;
    for (const auto& [rank, epoch] : loop)
      seeds.push_back(epoch->seed);
    Finding finding = finding_at(loop, Code::kShardsOverlap, Severity::kWarning);
    finding.headline =
        fmt::format("shares overlap: {} shuffles in another order on some ranks", sampler_of(loop));
    finding.tell(EvidenceKind::kSample, finding.affected,
                 "its seed and epoch together, by rank, in pass {}: {}", number.second,
                 fmt::join(seeds, ", "));
    finding.cause = "seed and set_epoch() must be the same on all ranks";
    return finding;
  }
  return std::nullopt;
}

/// Each rank gave its sampler a part of the data that is another than that of the others.
std::optional<Finding> subsets_apart(const Loops& loops) {
  for (const auto& [number, loop] : loops) {
    if (!is_dealt_out_to_all(loop) || !all_are(loop, history::kEnded) ||
        loop.begin()->second->share < kSamplesMin)
      continue;
    std::set<std::uint64_t> subsets;
    for (const auto& [rank, epoch] : loop)
      subsets.insert(epoch->subset);
    if (subsets.contains(0) || subsets.size() == 1)
      continue;
    const WatchedEpoch& first = *loop.begin()->second;
    Finding finding = finding_at(loop, Code::kSamplesMissed, Severity::kWarning);
    finding.headline = fmt::format(
        "ranks have different parts of the data, and {} gives each rank one of {} shares of its "
        "part",
        first.sampler, first.replicas);
    finding.tell(EvidenceKind::kSample, finding.affected,
                 "pass {}: a Subset of other indices on some ranks, of which each rank received {}",
                 number.second, received_by_rank(loop));
    finding.cause =
        "either the Subset makes the shares or the sampler does; where random_split() made it, it "
        "drew by another generator on each rank";
    return finding;
  }
  return std::nullopt;
}

// --- Unequal lengths

/// The sampler says that all shares are alike, and the ranks received more or less of them. By one
/// they may differ: the copy that fills up a share is no loss.
bool is_unequal(const ByRank& loop) {
  const WatchedEpoch& first = *loop.begin()->second;
  const auto [least, most] = std::minmax_element(
      loop.begin(), loop.end(),
      [](const auto& a, const auto& b) { return a.second->received < b.second->received; });
  return all_are(loop, history::kEnded | history::kIndexed | history::kShares) &&
         first.replicas == loop.size() &&
         std::none_of(loop.begin(), loop.end(),
                      [](const auto& one) { return one.second->has(history::kDropsLast); }) &&
         all_equal(loop, [](const WatchedEpoch& epoch) { return epoch.share * epoch.replicas; }) &&
         most->second->received > least->second->received + 1;
}

/// In two passes, as below.
std::optional<Finding> unequal(const Loops& loops) {
  for (auto at = loops.begin(); at != loops.end(); ++at) {
    const auto before = loops.find({at->first.first, at->first.second - 1});
    if (before == loops.end() || !is_unequal(before->second) || !is_unequal(at->second))
      continue;
    const ByRank& loop = at->second;
    // Who leaves out what is too long, say, and joins the ranks, means it.
    Finding finding = finding_at(loop, Code::kUnequalLengths, Severity::kNote);
    finding.headline =
        fmt::format("ranks received different numbers of samples: {}", received_by_rank(loop));
    finding.tell(EvidenceKind::kSample, finding.affected,
                 "{} deals out {} to each rank, in passes {} and {} alike", sampler_of(loop),
                 loop.begin()->second->share, before->first.second, at->first.second);
    finding.cause = "something between the sampler and the loop leaves out samples on some ranks";
    return finding;
  }
  return std::nullopt;
}

// --- Nothing at all

/// A sampler that drops what does not fill a share for each rank, and that is all there is.
std::optional<Finding> nothing(const Loops& loops) {
  const auto loop = std::find_if(loops.begin(), loops.end(), [](const auto& each) {
    return all_are(each.second, history::kEnded | history::kShares | history::kDropsLast) &&
           std::all_of(each.second.begin(), each.second.end(), [](const auto& one) {
             return one.second->batches == 0 && one.second->share == 0;
           });
  });
  if (loop == loops.end())
    return std::nullopt;
  Finding finding = finding_at(loop->second, Code::kEmptyEpoch, Severity::kWarning);
  finding.headline = fmt::format(
      "a pass over a loader gave nothing to any rank: {} deals out "
      "shares of 0 samples",
      sampler_of(loop->second));
  finding.cause = "it drops what does not fill a share for each rank (drop_last)";
  return finding;
}

// --- Samples missed

/// Fewer than the shares of the sampler hold: of those that it was given, some reached no loop.
bool missed_some(const ByRank& loop) {
  const WatchedEpoch& first = *loop.begin()->second;
  if (!all_are(loop, history::kEnded | history::kIndexed | history::kShares) ||
      first.replicas != loop.size() ||
      !all_equal(loop, [](const WatchedEpoch& epoch) { return epoch.share * epoch.replicas; }))
    return false;
  std::uint64_t received = 0;
  for (const auto& [rank, epoch] : loop) {
    if (epoch->has(history::kDropsLast))
      return false;
    received += epoch->received;
  }
  // It fills up the last share: of its samples at most one less than there are shares are copies.
  return received + first.replicas <= first.share * first.replicas;
}

/// Each place among the first ones of a share was received by one rank: what is between the sampler
/// and the loop makes shares again. Who takes a part of each share takes the same places on all
/// ranks, or any.
bool shared_twice(const ByRank& loop) {
  std::uint32_t by_some = 0;
  for (const auto& [rank, epoch] : loop) {
    if ((by_some & epoch->taken) != 0)
      return false;
    by_some |= epoch->taken;
  }
  const std::uint64_t looked_at =
      std::min<std::uint64_t>(history::kWatchPlaces, loop.begin()->second->share);
  return looked_at >= kSamplesMin && by_some == (std::uint64_t{1} << looked_at) - 1;
}

/// In two passes: the first one after a restart may go on where the last one ended.
std::optional<Finding> missed(const Loops& loops) {
  for (auto at = loops.begin(); at != loops.end(); ++at) {
    const auto before = loops.find({at->first.first, at->first.second - 1});
    if (before == loops.end() || !missed_some(before->second) || !missed_some(at->second) ||
        is_unequal(at->second))
      continue;
    const ByRank& loop = at->second;
    const WatchedEpoch& first = *loop.begin()->second;
    std::uint64_t all = 0;
    for (const auto& [rank, epoch] : loop)
      all += epoch->received;
    const bool twice = shared_twice(before->second) && shared_twice(loop);
    Finding finding =
        finding_at(loop, Code::kSamplesMissed, twice ? Severity::kWarning : Severity::kNote);
    finding.headline = fmt::format("of {} samples that {} deals out {} reach no rank",
                                   first.share * first.replicas, first.sampler,
                                   first.share * first.replicas - all);
    finding.tell(EvidenceKind::kSample, finding.affected,
                 "{} shares of {}; in pass {} the ranks received {}", first.replicas, first.share,
                 at->first.second, received_by_rank(loop));
    if (twice)
      finding.tell(EvidenceKind::kSample, finding.affected,
                   "of the first {} samples of each share, each place was received by one rank",
                   std::min<std::uint64_t>(history::kWatchPlaces, first.share));
    finding.cause =
        twice ? "something between the sampler and the loop takes a share of each share again"
              : "something between the sampler and the loop leaves them out";
    return finding;
  }
  return std::nullopt;
}

}  // namespace

std::vector<Finding> findings_of_shares(const Loops& loops) {
  std::vector<Finding> findings;
  for (std::optional<Finding> found :
       {share_of_two(loops), shuffled_apart(loops), subsets_apart(loops), missed(loops),
        unequal(loops), nothing(loops)}) {
    if (found)
      findings.push_back(std::move(*found));
  }
  return findings;
}

}  // namespace lockstep::checkers
