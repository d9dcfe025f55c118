// Ranks that wait for each other in collectives of different groups: which of them went another way
// than the others, or than it always did before.
#pragma once

#include <string>
#include <vector>

#include "checkers/blame/attribution.h"
#include "checkers/hang/blocked_calls.h"

namespace lockstep::checkers {

struct Parting {
  Attribution blame{};  ///< Nobody where it does not show.
  std::string how{};
  const Member* member{};       ///< One of those to blame,
  const Collective* instead{};  ///< and the call with which it parted.
};

/// Groups with the same members are one order of calls: where all ranks are stuck in their first
/// call after the last that all of them made, the few parted from the many, or one from what it
/// always did. Otherwise: who, before it came to where it waits, left out a call that it always
/// made after the calls before, and in which its peers now wait.
Parting parting(const Run& run, const WaitForGraph& graph, const std::vector<BlockedCall>& calls);

}  // namespace lockstep::checkers
