#include "harness/base/rank_set.h"

#include <algorithm>

namespace lockstep {

RankSet::RankSet(std::initializer_list<Rank> ranks) {
  for (const Rank rank : ranks)
    insert(rank);
}

RankSet RankSet::all(std::int32_t size) {
  RankSet set;
  for (std::int32_t r = 0; r < size; ++r)
    set.ranks_.push_back(Rank{r});
  return set;
}

void RankSet::insert(Rank rank) {
  const auto at = std::lower_bound(ranks_.begin(), ranks_.end(), rank);
  if (at == ranks_.end() || *at != rank)
    ranks_.insert(at, rank);
}

void RankSet::erase(Rank rank) { std::erase(ranks_, rank); }

bool RankSet::contains(Rank rank) const {
  return std::binary_search(ranks_.begin(), ranks_.end(), rank);
}

RankSet RankSet::minus(const RankSet& other) const {
  RankSet left;
  for (const Rank rank : ranks_) {
    if (!other.contains(rank))
      left.ranks_.push_back(rank);
  }
  return left;
}

std::string RankSet::to_string() const {
  if (ranks_.empty())
    return "none";
  std::string text;
  for (std::size_t i = 0; i < ranks_.size();) {
    std::size_t last = i;
    while (last + 1 < ranks_.size() && ranks_[last + 1].value == ranks_[last].value + 1)
      ++last;
    if (!text.empty())
      text += ',';
    text += std::to_string(ranks_[i].value);
    if (last > i)
      text += (last == i + 1 ? "," : "-") + std::to_string(ranks_[last].value);
    i = last + 1;
  }
  return text;
}

}  // namespace lockstep
