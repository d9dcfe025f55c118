// Ranks whose program came to its end while others still needed them.
#pragma once

#include <cstdint>
#include <vector>

#include "harness/history/run.h"
#include "harness/model/failure.h"
#include "harness/model/group_view.h"

namespace lockstep::checkers {

/// What this rank was in at that time, or did later: its process had not begun to end. Null where
/// that does not show.
const Collective* at_work(const Run& run, Rank rank, std::uint64_t at_ns);

/// Rank 0 had left, or was about to, when this one found the store gone; or null.
const Failure* without_the_store(const Run& run, const ProcessEnd& end,
                                 const std::vector<Failure>& failures);

/// Their programs came to their end before they were asked to go or while others needed them; by
/// time.
std::vector<const ProcessEnd*> early_leavers(const Run& run, const std::vector<GroupView>& groups,
                                             const std::vector<Failure>& failures);

}  // namespace lockstep::checkers
