// What becomes of the shares that a sampler makes for ranks: LS411 (two ranks take one share, or
// each shuffles in its own order), LS412 (they are cut down on their way to the loop), LS413
// (unequally), LS420 (there is nothing in them).
#pragma once

#include <vector>

#include "checkers/watch/passes.h"

namespace lockstep::checkers {

std::vector<Finding> findings_of_shares(const Loops& loops);

}  // namespace lockstep::checkers
