// Which process is a rank. Several may claim one: a wrapper that starts it (`sh -c "python ...;
// echo done"` per rank), the attempts of an elastic launcher, jobs one after the other, a side-car
// that inherits RANK and makes a world of its own, a fork that trains on. Checkers ask for the
// process with a rank, so only one may have it.
#pragma once

#include <cstdint>

#include "harness/history/run.h"

namespace lockstep::history {

/// Gives each rank to one process at a time; to be called again whenever `run` has grown. Others
/// are left in Process::beside, and their starts and ends have Role::kBeside: a process that came
/// into a group while the rank was in one (of two or more) already, an attempt that was followed by
/// another one, and a wrapper of a process that is the rank (except for its end where that tells
/// more). Of two worlds that formed at one time nobody has a rank that both have.
void settle_places(Run& run);

/// This process was in no process group that anybody saw: beside its rank it is a wrapper of it.
bool has_no_group(const Run& run, std::int32_t pid);

/// What the user started, which starts the ranks; it may be one of them, too.
bool is_command(const Run& run, std::int32_t pid);

/// A wrapper of this rank lived at that time: it may start another process as the rank.
bool wrapper_lives(const Run& run, Rank rank, std::uint64_t at_ns);

}  // namespace lockstep::history
