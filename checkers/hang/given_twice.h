// One RANK given to several processes that were there at one time and that all went to join: who
// starts the ranks does not count.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "harness/history/run.h"
#include "harness/verdict/verdict.h"

namespace lockstep::checkers {

/// LS107; none if no rank was. Processes without a group: each was last seen in init_process_group,
/// or raised in it.
std::optional<Finding> rank_given_twice(const Run& run, std::uint64_t cutoff_ns);

/// Of a running job, in one line: one launcher gave several processes one RANK, has started as many
/// as the world has ranks, and each of them failed in init_process_group or has long been there.
/// None unless that is so.
std::optional<std::string> ranks_that_nobody_can_meet(const Run& run);

}  // namespace lockstep::checkers
