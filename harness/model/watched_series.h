// The watched values of a job, put side by side: each parameter of a replica over the steps that
// all members of its group watched at the same place.
//
// A place is a number of collectives that were issued on the group, and a number of the optimizer's
// steps since: between two collectives all members are at the same one, whatever each of them
// counts.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "harness/history/watched_values.h"
#include "harness/model/group_view.h"

namespace lockstep {

/// One parameter before one step, as each member holds it.
struct WatchedSight {
  std::uint64_t position{};
  std::uint32_t ordinal{};
  std::uint64_t step{};   ///< As the first member counts the optimizer's steps.
  std::uint64_t at_ns{};  ///< When the last member had it.
  std::map<Rank, const history::WatchEntry*> by_rank{};
  bool other_optimizer{};  ///< Some members step by one that they made later.

  [[nodiscard]] bool all_have(std::uint32_t flag) const;
  [[nodiscard]] bool any_has(std::uint32_t flag) const;
  [[nodiscard]] bool values_equal() const;
  [[nodiscard]] bool gradients_equal() const;
  [[nodiscard]] bool states_equal() const;
  [[nodiscard]] bool settings_equal() const;
};

struct WatchedSeries {
  const GroupView* group{};
  const WatchedTensor* tensor{};  ///< As the first member has it.
  std::uint32_t replica{}, optimizer{};
  std::vector<WatchedSight> sights{};  ///< Of all members each, who could all be read; in order.
};

/// Of parameters: those that every member was watched in, by replica and in the order of their
/// definition.
std::vector<WatchedSeries> watched_series(const std::vector<GroupView>& groups);

/// The same of buffers.
std::vector<WatchedSeries> watched_buffers(const std::vector<GroupView>& groups);

/// Every member is known, there are two or more, and all were watched.
bool is_watched(const GroupView& group);

/// How far two values are apart, as a share of the larger one's norm; not finite where one is not.
double distance(const history::WatchValue& a, const history::WatchValue& b);

/// One is the other times a factor, to within rounding.
bool differ_by_factor(const history::WatchValue& a, const history::WatchValue& b);

/// What such values may differ by and still be the same: so much is lost when a number is changed
/// and changed back.
double tolerance_of(const WatchedTensor& tensor);

}  // namespace lockstep
