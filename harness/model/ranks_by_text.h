// What is said of ranks, equal ranks together: "ranks 1,2: in barrier dp#5".
#pragma once

#include <algorithm>
#include <cstddef>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "harness/verdict/verdict.h"

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

/// Lines of evidence, of a rank each; those with equal words become one.
class EvidenceOfRanks {
 public:
  void add(Evidence line) {
    const auto same = std::find_if(lines_.begin(), lines_.end(),
                                   [&](const Evidence& known) { return known.text == line.text; });
    if (same == lines_.end()) {
      lines_.push_back(std::move(line));
      return;
    }
    for (const Rank rank : line.ranks)
      same->ranks.insert(rank);
  }
  /// The first `most` of them.
  void tell(Finding& finding, std::size_t most = std::numeric_limits<std::size_t>::max()) const {
    for (std::size_t i = 0; i < std::min(lines_.size(), most); ++i) {
      finding.evidence.push_back(lines_[i]);
      finding.evidence.back().text.insert(0, words(lines_[i].ranks) + ": ");
    }
  }

 private:
  std::vector<Evidence> lines_{};
};

}  // namespace lockstep
