// Two jobs that meet each other: a rank was in a group with a process that is none of the job's,
// while the rank that should have been in it never was. Where two jobs use one MASTER_PORT, whoever
// comes first is taken.
#pragma once

#include <optional>

#include "harness/verdict/verdict.h"

namespace lockstep::checkers {

/// LS107. (That a stranger is connected alone says nothing: each of two locksteps may see a part of
/// one job.)
std::optional<Finding> met_another_job(const Run& run);

/// "rank 1 is connected, at 127.0.0.1:29500, to pid 7 (python a.py), which is no process of this
/// job", of each of these.
void tell_strangers(const Run& run, const RankSet& ranks, Finding& finding);

}  // namespace lockstep::checkers
