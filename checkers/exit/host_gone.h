// A host that is gone with all its ranks (LS101): its lockstep said nothing more, and others saw
// their connections closed.
#pragma once

#include <optional>

#include "harness/model/job.h"

namespace lockstep::checkers {

/// None where a rank failed for a reason of its own, or the silence may have another one.
std::optional<Finding> host_gone(const Job& job);

}  // namespace lockstep::checkers
