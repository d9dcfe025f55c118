// Ranks that waited for one that did not come, until the time that PyTorch or they themselves allow
// had passed: what held that rank, as it was seen while they waited.
#pragma once

#include <optional>

#include "harness/verdict/verdict.h"

namespace lockstep::checkers {

/// LS303, or LS301 of a rank that was busy, as stall() says it of the instant before the first of
/// them gave up. None if any rank failed for a reason of its own, or if what held who was waited
/// for was not seen. Where it was the program that gave up, and not a wait of PyTorch's whose limit
/// had passed: none if they did not wait for long, or if who was waited for came after all.
std::optional<Finding> given_up(const Run& run);

}  // namespace lockstep::checkers
