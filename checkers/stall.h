// A wait that lasted until the run was ended, and was not proven to be for ever: who was absent
// (LS301), on what it was stalled (LS303), or that all were inside (LS307).
#pragma once

#include <optional>
#include <string>

#include "checkers/owing.h"
#include "harness/verdict/verdict.h"

namespace lockstep::checkers {

/// The first collective that some had issued and not left when we ended the job. The others may
/// have been on their way: likely at best.
std::optional<Finding> stall(const Run& run, const Situation& situation);

/// What a process was doing outside of collectives, as far as the kernel tells of its main thread:
/// "is stopped", "sleeps", "reads from a pipe". Empty if it ran, or waited for other ranks.
/// `stack`: of its main thread, null if it was not seen.
std::string stalled_on(const Run& run, std::int32_t pid, const StackSample* stack,
                       std::uint64_t cutoff_ns);

/// The ranks that have the file lock, or the other end of the pipe, that its main thread waits for.
RankSet who_has_it(const Run& run, std::int32_t pid, std::uint64_t cutoff_ns);

}  // namespace lockstep::checkers
