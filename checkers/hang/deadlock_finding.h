// What is said of a proven deadlock: where it began, who is at fault, what each rank waits for.
#pragma once

#include <optional>

#include "checkers/hang/wait_for_graph.h"

namespace lockstep::checkers {

/// LS301, LS302, LS305 or LS307, for the ranks that can never go on; none if there are none.
std::optional<Finding> proven_deadlock(const Run& run, const WaitForGraph& graph);

}  // namespace lockstep::checkers
