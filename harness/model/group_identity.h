// Which groups of several processes are one group.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "harness/history/run.h"

namespace lockstep {

/// What tells groups of one process apart, but for their order.
struct GroupIdentity {
  std::string name{};
  std::int32_t size{};
  std::vector<Rank> ranks{};
  std::uint64_t store{};

  friend auto operator<=>(const GroupIdentity&, const GroupIdentity&) = default;
};

GroupIdentity identity_of(const Group& group);

/// Groups that have no name, and that those who made them cannot be told apart by, or be put
/// together by: where members meet is not known, some made more of them than others, or two have
/// one place in them. (A job may make such a group whenever its members change.)
std::set<GroupIdentity> unplaced_groups(const std::vector<const Process*>& processes);

}  // namespace lockstep
