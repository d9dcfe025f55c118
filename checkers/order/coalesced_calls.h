// Calls that a program made and PyTorch kept to itself: its coalescing manager sets aside what is
// called in its block of code, to make it at the end of it. Left by an exception, it goes on to do
// so with every later call of that kind on the group, which then returns and has done nothing.
#pragma once

#include <vector>

#include "harness/history/run.h"
#include "harness/verdict/verdict.h"

namespace lockstep::checkers {

/// LS208, for the ranks that left their world so and ended well. (Where one failed, its exception
/// is what is told.)
std::vector<Finding> calls_set_aside(const Run& run);

}  // namespace lockstep::checkers
