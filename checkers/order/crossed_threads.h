// Two threads of a rank that issue on one group: which of their calls comes first is chance, and
// chance may decide otherwise on each rank.
#pragma once

#include <cstdint>
#include <optional>

#include "harness/model/group_view.h"
#include "harness/verdict/verdict.h"

namespace lockstep::checkers {

/// Where the calls at `seq` do not agree as they were recorded, and a rank's threads called at once
/// there, so that the record of the order may be wrong. That something is, is known once a call
/// from there on has failed or never came to its end. Nobody is at fault. Nothing: it may be well.
std::optional<Finding> crossed_threads(const Run& run, const GroupView& group, std::uint64_t seq);

/// Which of the calls came first is then chance, and no rank's fault.
void say_what_threads_did(const RankSet& ranks, Finding& finding);

}  // namespace lockstep::checkers
