// The groups that ranks created after their world, by the number that PyTorch counts them with: it
// is their name, and whoever meets under one name is one group. Ranks that created others before
// have another number for the same group, or the same number for another one.
#pragma once

#include <vector>

#include "harness/history/run.h"
#include "harness/verdict/verdict.h"

namespace lockstep::checkers {

/// LS209, at most one for each world: the first number under which ranks created different groups.
std::vector<Finding> creations_that_differ(const Run& run);

}  // namespace lockstep::checkers
