// What each rank is doing now, in a few lines, for a notice while the job runs. Of its history
// only: the judgement is made from the closed run.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "harness/history/run.h"

namespace lockstep::session {

/// "ranks 0-2: in all_reduce world#12 at train.py:17 for 12 s", "rank 3: after all_reduce world#11
/// at train.py:17 for 12 s, now at train.py:40"; equal ranks together, largest group first.
/// `living`: of whom a process lives; of ranks that a launcher started again, the journal knows
/// only that they have ended.
/// `elsewhere`: ranks of other hosts, which are left out.
std::vector<std::string> rank_activity(const Run& live, const RankSet& living, std::uint64_t now_ns,
                                       const RankSet& elsewhere = {});

/// A rank was in an import of Python's when it was last looked at: it may take long, and is none of
/// the things that a stall is told of for.
bool one_imports(const Run& live);

}  // namespace lockstep::session
