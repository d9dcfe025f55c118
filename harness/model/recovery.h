// Calls that failed and that the program got over: whoever waited in them was told so by an
// exception, caught it, left the group and worked on.
#pragma once

#include <cstdint>
#include <vector>

#include "harness/history/run.h"
#include "harness/model/group_view.h"
#include "harness/verdict/verdict.h"

namespace lockstep {

/// This call failed, and its process finished a collective of another group, issued after that.
bool was_left_behind(const Process& process, const Collective& call);

/// Whoever came to this place of the group's order was told that the call failed there, and worked
/// on in another group; so did those who never came to it, or else the whole job ended well. Then
/// nobody owes that call any more. Not where that is not known of any rank, or where it returned
/// (but for who had nothing to wait for in it: the root of a broadcast).
bool was_got_over(const Run& run, const GroupView& group, std::uint64_t seq);

/// A note for each group in which some waited for others that never came, and that was got over.
std::vector<Finding> recoveries(const Run& run, const std::vector<GroupView>& groups);

}  // namespace lockstep
