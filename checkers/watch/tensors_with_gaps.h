// LS213: a collective on a tensor with gaps, of a backend that handles what lies in memory instead.
#pragma once

#include <vector>

#include "harness/history/run.h"
#include "harness/verdict/verdict.h"

namespace lockstep::checkers {

/// A finding for each operation and line; whether values are watched or not.
std::vector<Finding> tensors_with_gaps(const Run& run);

}  // namespace lockstep::checkers
