// Passes over DataLoaders that all ranks made, as the watch saw them.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "harness/history/run.h"
#include "harness/history/watched_values.h"
#include "harness/verdict/verdict.h"

namespace lockstep::checkers {

using ByRank = std::map<Rank, const WatchedEpoch*>;
/// By the number of the loader and of the pass over it.
using Loops = std::map<std::pair<std::uint32_t, std::uint32_t>, ByRank>;

Loops loops_of(const Run& run);

bool all_are(const ByRank& loop, std::uint32_t flags);

template <class Value>
bool all_equal(const ByRank& loop, Value value) {
  const auto first = value(*loop.begin()->second);
  for (const auto& [rank, epoch] : loop) {
    if (value(*epoch) != first)
      return false;
  }
  return true;
}

RankSet ranks_in(const ByRank& loop);

/// The class of its sampler.
std::string sampler_of(const ByRank& loop);

/// With the line of the loop, about all ranks.
Finding finding_at(const ByRank& loop, Code code, Severity severity);

/// "24, 24, 20", by rank.
std::string received_by_rank(const ByRank& loop);

}  // namespace lockstep::checkers
