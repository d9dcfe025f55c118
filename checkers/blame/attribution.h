// Who is to blame: stops at the first rule that singles out a proper subset of a group's members,
// and names nobody where none does.
#pragma once

#include <vector>

#include "harness/model/group_view.h"

namespace lockstep::checkers {

struct Attribution {
  RankSet culprits{};
  Confidence confidence{Confidence::kUnknown};
};

/// Members of a group divided by what they did at one place; `blamable` only if nothing before that
/// place is unknown. Strict majority of all members, of whom there are three or more: the others
/// are likely at fault.
Attribution blame_minority(const GroupView& group, const std::vector<RankSet>& classes,
                           bool blamable);

/// Exactly one of the ranks that are at `seq` breaks a habit of its own, and all others follow
/// theirs.
Attribution blame_broken_habit(const Run& run, const GroupView& group, std::uint64_t seq,
                               bool blamable);

/// The calls of all members before `seq` are known, or known to be equal by the digests of those
/// overwritten.
bool known_before(const GroupView& group, std::uint64_t seq);

}  // namespace lockstep::checkers
