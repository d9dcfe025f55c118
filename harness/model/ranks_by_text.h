// What is said of ranks, equal ranks together: "ranks 1,2: in barrier dp#5".
#pragma once

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "harness/base/rank_set.h"

namespace lockstep {

/// In the order in which the texts first came.
using RanksByText = std::vector<std::pair<std::string, RankSet>>;

inline void add_rank(RanksByText& lines, const std::string& text, Rank rank) {
  auto line =
      std::find_if(lines.begin(), lines.end(), [&](const auto& l) { return l.first == text; });
  if (line == lines.end())
    line = lines.insert(lines.end(), {text, {}});
  line->second.insert(rank);
}

}  // namespace lockstep
