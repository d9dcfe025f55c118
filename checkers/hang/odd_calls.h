// Calls that all their members are in, and in which one rank does what no other does: for dumps,
// where nobody is missing and nothing that is recorded differs.
#pragma once

#include <optional>
#include <vector>

#include "checkers/hang/recorded_graph.h"

namespace lockstep::checkers {

/// A message between two ranks that exchange no such ones, in no group of its kind.
struct OddMessage {
  Rank rank{};
  const RecordedWait* wait{};
  const Collective* call{};  ///< The message: the rank waits in it, or it is done.
  std::size_t kindred{};  ///< Other groups of that kind, whose ranks at this place have messages.
};

/// None where there are several, or nothing to compare with.
std::optional<OddMessage> odd_message(const std::vector<GroupView>& groups,
                                      const std::vector<RecordedWait>& waits);

/// Members of an all_to_all that hand in and receive another number of elements than most, of whom
/// each hands in what it receives: those split evenly, and then the call cannot fit. (How a call is
/// split is not recorded; uneven splits show in one of the two numbers as a rule.)
RankSet odd_sizes(const RecordedWait& wait);

}  // namespace lockstep::checkers
