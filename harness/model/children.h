// The children of a process as of its last look, in words.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "harness/history/run.h"

namespace lockstep {

/// Of this process, before the cutoff; null if it was not looked at.
const StateSample* last_state(const Run& run, std::int32_t pid, std::uint64_t cutoff_ns);

/// "child pid 4711 (pt_data_worker) sleeps in hrtimer_nanosleep".
std::string in_words(const ChildState& child);

}  // namespace lockstep
