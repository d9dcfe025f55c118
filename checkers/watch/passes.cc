#include "checkers/watch/passes.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <tuple>
#include <vector>

namespace lockstep::checkers {
namespace {

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

}  // namespace

Loops loops_of(const Run& run) {
  Loops loops;
  std::map<std::tuple<std::string, std::string, std::uint32_t, std::uint32_t>, std::uint32_t>
      loaders;  // The loaders of a rank are numbered among those of one kind, and line.
  for (const Process& process : run.processes) {
    if (!process.rank || process.watched == nullptr)
      continue;
    for (const WatchedEpoch& epoch : process.watched->epochs) {
      const auto number = static_cast<std::uint32_t>(loaders.size());
      const auto [loader, made] =
          loaders.try_emplace({epoch.sampler, epoch.place, epoch.replicas, epoch.loader}, number);
      loops[{loader->second, epoch.epoch}].emplace(*process.rank, &epoch);
    }
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

RankSet ranks_in(const ByRank& loop) {
  RankSet ranks;
  for (const auto& [rank, epoch] : loop)
    ranks.insert(rank);
  return ranks;
}

std::string sampler_of(const ByRank& loop) { return loop.begin()->second->sampler; }

Finding finding_at(const ByRank& loop, Code code, Severity severity) {
  Finding finding{.code = code, .severity = severity, .confidence = Confidence::kCertain};
  finding.affected = ranks_in(loop);
  for (const auto& [rank, epoch] : loop)
    finding.at_ns = std::max(finding.at_ns, epoch->at_ns);
  if (auto site = line_of(loop))
    finding.sites.push_back(std::move(*site));
  return finding;
}

std::string received_by_rank(const ByRank& loop) {
  std::vector<std::uint64_t> received;
  for (const auto& [rank, epoch] : loop)
    received.push_back(epoch->received);
  return fmt::format("{}", fmt::join(received, ", "));
}

}  // namespace lockstep::checkers
