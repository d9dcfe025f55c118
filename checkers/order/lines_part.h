// Calls that agree and come from other lines: a call that a rank left out behind a helper is not
// seen where it is left out, since the next one of the same kind is taken for it.
#pragma once

#include <optional>

#include "harness/model/group_view.h"
#include "harness/verdict/verdict.h"

namespace lockstep::checkers {

/// In it, or failed in it: the last that it issued.
bool ends_in_a_wait(const Member& member);

/// All calls agree, and a member never came to one that others wait or failed in: where its lines
/// part from theirs, and are the same again once some of their calls are left out. Of three or more
/// ranks the few are named.
std::optional<Finding> left_out_behind_a_helper(const Run& run, const GroupView& group);

/// The last call of this rank, made through a helper that others called from another line: what it
/// got there may not have been meant for it. Empty where that is not so, or was so before.
std::optional<Evidence> may_have_got_another_call(const Run& run, const GroupView& group,
                                                  Rank rank);

}  // namespace lockstep::checkers
