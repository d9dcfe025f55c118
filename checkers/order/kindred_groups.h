// Groups of one kind (all those of tensor parallelism, say) run one program. Where the members of
// one disagree and none of them are most, the others show who went another way.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "harness/model/group_view.h"

namespace lockstep::checkers {

/// So many others must agree before they show anything.
inline constexpr std::size_t kKindredMin = 2;

/// "tensor" of a group's name "tensor:6", by the description that a Flight Recorder's dump holds,
/// or "pg2" by the order in which ranks make their groups; empty where it is not known.
std::string kind_of_group(const std::string& name);

/// Another one of its kind and size.
bool is_kindred(const GroupView& group, const GroupView& other);

/// Of a finding about calls of the group that do not agree, and that names nobody.
void blame_by_kindred(const std::vector<GroupView>& groups, const GroupView& group,
                      Finding& finding);

}  // namespace lockstep::checkers
