// All times and all process ids of a run, which are of its host.
#pragma once

#include <cstddef>
#include <cstdint>

#include "harness/history/run.h"

namespace lockstep::history {

/// Those that are known (not 0), by as many nanoseconds.
void shift_times(Run& run, std::int64_t shift);

/// Of processes and threads: the number of the host above kPidBits (hosts.h).
void number_pids(Run& run, std::size_t host);

}  // namespace lockstep::history
