// Gradients by step and name: what ranks hold, what they should, and what known mistakes would have
// given.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "harness/history/run.h"

namespace lockstep::checkers {

/// One gradient in one step: what ranks have, and what they should.
struct Subject {
  std::int64_t step{};
  std::string name{};  ///< "grad/fc1.weight".
  std::map<Rank, const Observation*> actual{};
  const Observation* right{};                          ///< For all ranks.
  std::map<Rank, const Observation*> right_by_rank{};  ///< Or for one.
  std::vector<const Observation*> permutations{};
  std::map<std::string, std::vector<const Observation*>> mistakes{};  ///< By variant.

  [[nodiscard]] const Observation* right_for(Rank rank) const {
    const auto own = right_by_rank.find(rank);
    return own == right_by_rank.end() ? right : own->second;
  }
};

/// By step and name.
using Subjects = std::map<std::pair<std::int64_t, std::string>, Subject>;

Subjects subjects_of(const Run& run);

}  // namespace lockstep::checkers
