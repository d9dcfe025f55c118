// The operations that cannot finish, each with everybody who waits in it or owes it.
#pragma once

#include <vector>

#include "checkers/owing.h"

namespace lockstep::checkers {

struct Knot {
  const GroupView* group{};
  const Collective* call{};  ///< As the first waiter issued it.
  RankSet waiting{}, absent{}, incompatible{}, broken{};
  std::uint64_t since_ns{kNever};
};

/// In the order in which the ranks came to them.
std::vector<Knot> knots_of(const std::vector<StuckWait>& waits);

}  // namespace lockstep::checkers
