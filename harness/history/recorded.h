// A process of which only dumps of its Flight Recorder are known (history/flight_recorder.h), as a
// Process: its last calls of each group, and where they stand.
//
//   Group::issued, completed     one behind the number of the last call issued, completed
//   Collective::returned_ns      its device has begun it; issued_ns where a recorder never tells
//   that Collective::completed_ns     it is done; `failed`: it was given up Process::closed_ns when
//   the dump was written; all times are the host's wall clock Process::capabilities kRecorded
#pragma once

#include <algorithm>

#include "harness/history/run.h"

namespace lockstep {

inline constexpr std::uint64_t kRecorded = std::uint64_t{1} << 63;

inline bool is_recorded(const Process& process) { return (process.capabilities & kRecorded) != 0; }

/// Nothing else is known: no journal, no ends of processes, no stacks of now.
inline bool is_of_dumps(const Run& run) {
  return std::any_of(run.processes.begin(), run.processes.end(), is_recorded);
}

}  // namespace lockstep
