// A wait that lasted until the run was ended, and was not proven to be for ever: who was absent
// (LS301), on what it was stalled (LS303), or that all were inside (LS307).
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string_view>

#include "checkers/hang/wait_for_graph.h"
#include "harness/verdict/verdict.h"

namespace lockstep::checkers {

/// A stall is worth a word once nothing has moved for so long. Whoever ends a job sooner may just
/// have ended a slow one: that is no finding.
inline constexpr std::chrono::seconds kStallIsNoticedAfter{10};

/// The first collective that some had issued and not left at the graph's end, `when`. The
/// others may have been on their way: likely at best. `wait`: ranks that are known to wait for what
/// they put on a device, whatever their stacks show.
std::optional<Finding> stall(const Run& run, const WaitForGraph& graph,
                             std::string_view when = "when the run was ended",
                             const RankSet& wait = {});

/// Than any call of the job before it: ranks of a healthy job wait for each other, too.
bool waited_longer_than_ever(const Run& run, const Finding& stalled, std::uint64_t cutoff_ns);

}  // namespace lockstep::checkers
