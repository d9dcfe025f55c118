// Ranks whose program came to its end while others still needed them (LS102).
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "harness/history/run.h"
#include "harness/model/failure.h"
#include "harness/model/group_view.h"

namespace lockstep::checkers {

/// What this rank was in at that time, or did later: its process had not begun to end. Null where
/// that does not show.
const Collective* at_work(const Run& run, Rank rank, std::uint64_t at_ns);

/// Their programs came to their end before they were asked to go or while others needed them; by
/// time.
std::vector<const ProcessEnd*> early_leavers(const Run& run, const std::vector<GroupView>& groups,
                                             const std::vector<Failure>& failures);

/// LS102, of those leavers.
Finding left_early(const Run& run, const std::vector<const ProcessEnd*>& leavers,
                   const std::vector<Failure>& failures, bool whole);

/// "rank 1 ended after all_reduce #3 at train.py:20", or "in" it.
void tell_last_call(const Run& run, Rank rank, std::string_view verb, Finding& finding);

}  // namespace lockstep::checkers
