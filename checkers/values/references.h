// Observed tensors that have a reference: what ranks hold, what they should, and what known
// mistakes would have given.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "harness/history/run.h"

namespace lockstep::checkers {

/// One tensor at one point of a step.
struct Subject {
  std::int64_t step{};
  std::string phase{};
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

/// By step, place within the step, and name.
using Subjects = std::map<std::tuple<std::int64_t, std::int32_t, std::string>, Subject>;

/// Whether ranks keep this tensor to themselves: neither broadcast nor reduced, as the case asks.
bool is_ignored(const Plan& plan, std::string_view name);

/// Of the observations that are asked about. What is ignored has each rank's own gradient for its
/// reference.
Subjects subjects_of(const Run& run, const std::function<bool(const Observation&)>& asked);

}  // namespace lockstep::checkers
