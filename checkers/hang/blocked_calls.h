// The operations that cannot finish, each with everybody who waits in it or owes it.
#pragma once

#include <vector>

#include "checkers/hang/wait_for_graph.h"

namespace lockstep::checkers {

struct BlockedCall {
  const GroupView* group{};
  const Collective* call{};  ///< As the first waiter issued it.
  RankSet waiting{}, absent{}, incompatible{}, broken{};
  std::uint64_t since_ns{kNeverNs};
};

/// In the order in which the ranks came to them.
std::vector<BlockedCall> blocked_calls_of(const std::vector<BlockedOn>& waits);

}  // namespace lockstep::checkers
