// Groups of one kind (all those of tensor parallelism, say) run one program. Where the members of
// one disagree and none of them are most, the others show who went another way.
#pragma once

#include <vector>

#include "harness/model/group_view.h"

namespace lockstep::checkers {

/// Of a finding about calls of the group that do not agree, and that names nobody. Kinds are told
/// by the descriptions of groups that a Flight Recorder's dumps hold.
void blame_by_kindred(const std::vector<GroupView>& groups, const GroupView& group,
                      Finding& finding);

}  // namespace lockstep::checkers
