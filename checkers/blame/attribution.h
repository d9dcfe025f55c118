// Who is to blame: stops at the first rule that singles out a proper subset of a group's members,
// and names nobody where none does.
#pragma once

#include <cstddef>
#include <vector>

#include "harness/model/group_view.h"

namespace lockstep::checkers {

struct Attribution {
  RankSet culprits{};
  Confidence confidence{Confidence::kUnknown};
};

/// Of three or more, a strict majority; fewer than half.
constexpr bool is_majority(std::size_t some, std::size_t all) { return all >= 3 && 2 * some > all; }
constexpr bool is_minority(std::size_t some, std::size_t all) { return all >= 3 && 2 * some < all; }

/// Members of a group divided by what they did at one place; `blamable` only if nothing before that
/// place is unknown. Strict majority of all members, of whom there are three or more: the others
/// are likely at fault.
Attribution blame_minority(const GroupView& group, const std::vector<RankSet>& classes,
                           bool blamable);

/// Exactly one of the ranks that are at `seq` makes another call than it always did, and all others
/// make their usual one.
Attribution blame_unusual_call(const Run& run, const GroupView& group, std::uint64_t seq,
                               bool blamable);

/// The calls of all members before `seq` are known, or known to be equal by the digests of those
/// overwritten.
bool known_before(const GroupView& group, std::uint64_t seq);

}  // namespace lockstep::checkers
