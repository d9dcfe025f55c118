// A line that only some ranks ever run: what it issues is taken for the next call of the others'
// loop, so that the ranks part much later and elsewhere.
#pragma once

#include <optional>

#include "harness/model/group_view.h"
#include "harness/verdict/verdict.h"

namespace lockstep::checkers {

/// All calls agree, some ranks wait or failed in one that the others never came to, and there are
/// lines that only those some ever ran, also before the others had ended, while of no other line
/// they issued more calls. Of three or more ranks the few are named.
std::optional<Finding> issued_by_some_only(const Run& run, const GroupView& group);

}  // namespace lockstep::checkers
