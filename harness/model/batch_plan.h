// Did a rank run out of batches where others wait for it? In the suite that is a fact: the plan
// says how many each rank has, and the conversation how many it was given.
#pragma once

#include <string>

#include "harness/history/run.h"
#include "harness/model/group_view.h"

namespace lockstep {

/// Ranks that take part in `step`: those that have a batch for it. All of them where the plan says
/// nothing of batches, and where every rank has run out.
RankSet taking_part(const Plan& plan, std::int64_t step);

/// Whose buffers a forward of this step begins with where they are broadcast: rank 0's, or where
/// the plan says who has batches, the largest rank that has one.
Rank buffer_source(const Plan& plan, std::int64_t step);

/// True if each rank of `absent` has run all its batches, the same calls in them as the others, and
/// was told that there are no more, and the call that it owes was issued by every rank of `waiting`
/// for a further batch.
bool ran_out(const Run& run, const GroupView& group, const RankSet& waiting, const RankSet& absent);

/// "rank 1 ran 3 of 5 batches; its loader ended".
std::string who_ran_out(const Plan& plan, const RankSet& ranks);

}  // namespace lockstep
