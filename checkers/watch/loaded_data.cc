#include "checkers/watch/loaded_data.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "checkers/watch/parted.h"
#include "checkers/watch/watch_coverage.h"
#include "harness/model/coverage.h"
#include "harness/model/group_view.h"

namespace lockstep::checkers {
namespace {

constexpr std::size_t kReductionsMin = 3;
constexpr std::size_t kBatchesMin = 2;
constexpr std::uint64_t kSamplesMin = 8;  // Fewer come in one order by chance.

using ByRank = std::map<Rank, const WatchedEpoch*>;
/// By the number of the loader and of the pass over it: those that all ranks made.
using Loops = std::map<std::pair<std::uint32_t, std::uint32_t>, ByRank>;

Loops loops_of(const Run& run) {
  Loops loops;
  for (const Process& process : run.processes) {
    if (!process.rank || process.watched == nullptr)
      continue;
    for (const WatchedEpoch& epoch : process.watched->epochs)
      loops[{epoch.loader, epoch.epoch}].emplace(*process.rank, &epoch);
  }
  std::erase_if(loops, [&](const auto& loop) {
    return static_cast<std::int32_t>(loop.second.size()) != run.plan.world_size;
  });
  return loops;
}

bool all_are(const ByRank& loop, std::uint32_t flags) {
  return std::all_of(loop.begin(), loop.end(),
                     [&](const auto& one) { return one.second->has(flags); });
}

template <class Value>
bool all_equal(const ByRank& loop, Value value) {
  const auto first = value(*loop.begin()->second);
  return std::all_of(loop.begin(), loop.end(),
                     [&](const auto& one) { return value(*one.second) == first; });
}

RankSet ranks_in(const ByRank& loop) {
  RankSet ranks;
  for (const auto& [rank, epoch] : loop)
    ranks.insert(rank);
  return ranks;
}

std::string sampler_of(const ByRank& loop) { return loop.begin()->second->sampler; }

/// The line of the loop.
std::optional<SiteRef> line_of(const ByRank& loop) {
  const auto& [rank, epoch] = *loop.begin();
  const std::size_t colon = epoch->place.rfind(':');
  SiteRef site{.rank = rank, .role = "loop"};
  if (colon == std::string::npos ||
      std::from_chars(epoch->place.data() + colon + 1, epoch->place.data() + epoch->place.size(),
                      site.line)
              .ec != std::errc{})
    return std::nullopt;
  site.file = epoch->place.substr(0, colon);
  return site;
}

Finding finding_at(const ByRank& loop, Code code, Severity severity) {
  Finding finding{.code = code, .severity = severity, .confidence = Confidence::kCertain};
  finding.affected = ranks_in(loop);
  for (const auto& [rank, epoch] : loop)
    finding.at_ns = std::max(finding.at_ns, epoch->at_ns);
  if (auto site = line_of(loop))
    finding.sites.push_back(std::move(*site));
  return finding;
}

// --- All ranks read the same

bool is_of_replica_of(const Member& member, const WatchedHandedIn& handed) {
  return handed.site != 0 && handed.site < member.process->sites.size() &&
         is_of_replica(member.process->sites[handed.site]);
}

/// At every first reduction of a replica's gradients that was looked at, and there are enough of
/// them, all members of the group handed in the same.
std::size_t same_handed_in(const GroupView& group) {
  std::map<std::uint64_t, std::vector<const WatchedHandedIn*>> places;
  for (const Member& member : group.members) {
    if (member.process->watched == nullptr)
      return 0;
    for (const WatchedHandedIn& handed : member.process->watched->handed_in) {
      if (handed.sampled && handed.group == member.group && is_of_replica_of(member, handed))
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

/// The same indices, and the same data behind them: these are no files of the rank's own.
bool read_the_same(const ByRank& loop) {
  const std::size_t looked_at =
      std::min<std::size_t>(loop.begin()->second->batches, history::kWatchBatches);
  const auto& digests = loop.begin()->second->digests;
  return looked_at >= kBatchesMin && all_are(loop, history::kIndexed | history::kTrained) &&
         std::all_of(digests.begin(), digests.begin() + static_cast<std::ptrdiff_t>(looked_at),
                     [](std::uint64_t digest) { return digest != 0; }) &&
         all_equal(loop, [](const WatchedEpoch& epoch) { return epoch.order; }) &&
         all_equal(loop, [](const WatchedEpoch& epoch) { return epoch.digests; });
}

std::optional<Finding> overlap(const Job& job, const Loops& loops) {
  const auto loop = std::find_if(loops.begin(), loops.end(),
                                 [](const auto& each) { return read_the_same(each.second); });
  if (loop == loops.end())
    return std::nullopt;
  for (const GroupView& group : job.groups()) {
    if (group.members.size() < 2)
      continue;
    const std::size_t same = same_handed_in(group);
    if (same < kReductionsMin)
      continue;
    Finding finding = finding_at(loop->second, Code::kShardsOverlap, Severity::kError);
    finding.headline =
        fmt::format("{} read the same samples in the same order, and computed the same",
                    words(finding.affected));
    finding.group = group.label();
    finding.tell(
        EvidenceKind::kSample, finding.affected,
        "{} samples by {} in pass {} over the loader: the same indices and the same batches",
        loop->second.begin()->second->received, sampler_of(loop->second), loop->first.second);
    finding.tell(EvidenceKind::kValue, finding.affected,
                 "what they handed to the reduction of gradients was bit-identical at all {} "
                 "that were looked at",
                 same);
    finding.cause = "the loader makes no shares for ranks: each rank does the whole work again";
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

std::string received_by_rank(const ByRank& loop) {
  std::vector<std::uint64_t> received;
  for (const auto& [rank, epoch] : loop)
    received.push_back(epoch->received);
  return fmt::format("{}", fmt::join(received, ", "));
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

/// To within a batch, each rank received as much of its share as there are shares: it was cut down
/// a second time. A sampler of batches may drop what fills none, of each group of like samples.
bool shared_twice(const ByRank& loop) {
  constexpr std::uint64_t kLostBatchesMin = 4;
  return std::all_of(loop.begin(), loop.end(), [](const auto& one) {
    const WatchedEpoch& epoch = *one.second;
    const std::uint64_t batches = std::max<std::uint64_t>(1, epoch.batches);
    const std::uint64_t batch = (epoch.received + batches - 1) / batches;
    const std::uint64_t expected = epoch.share / epoch.replicas;
    return epoch.received <= expected + batch && expected <= epoch.received + batch &&
           epoch.share >= epoch.received + kLostBatchesMin * batch;
  });
}

/// Some pass over the loader had all: the others are a part by choice, as a curriculum begins with.
bool was_ever_whole(const Loops& loops, std::uint32_t loader) {
  return std::any_of(loops.begin(), loops.end(), [&](const auto& each) {
    return each.first.first == loader && all_are(each.second, history::kEnded) &&
           !missed_some(each.second);
  });
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
    const bool twice = shared_twice(loop) && !was_ever_whole(loops, at->first.first);
    Finding finding =
        finding_at(loop, Code::kSamplesMissed, twice ? Severity::kWarning : Severity::kNote);
    finding.headline = fmt::format("of {} samples that {} deals out {} reach no rank",
                                   first.share * first.replicas, first.sampler,
                                   first.share * first.replicas - all);
    finding.tell(EvidenceKind::kSample, finding.affected,
                 "{} shares of {}; in pass {} the ranks received {}", first.replicas, first.share,
                 at->first.second, received_by_rank(loop));
    finding.cause =
        twice ? "something between the sampler and the loop takes a share of each share again"
              : "something between the sampler and the loop leaves them out";
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
  for (std::optional<Finding> found : {overlap(job, loops), missed(loops), unequal(loops),
                                       nothing(loops), not_reshuffled(loops)}) {
    if (!found)
      continue;
    if (found->severity == Severity::kError)
      verdict.outcome = Outcome::kFail;
    verdict.findings.push_back(std::move(*found));
  }
  return verdict;
}

}  // namespace lockstep::checkers
