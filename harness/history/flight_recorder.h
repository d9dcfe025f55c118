// A folder of Flight Recorder dumps as a Run. What dumps do not hold is not there: no journal, no
// ends of processes, no stacks of now, no reduction, no root (Run::of_dumps).
#pragma once

#include <string>

#include "harness/base/error.h"
#include "harness/history/run.h"

namespace lockstep::history {

/// A folder that is no run and has a dump in it, or the file of one.
bool holds_dumps(const std::string& path);

/// The rank of a dump by the name of its file, as PyTorch gives it: "nccl_trace_rank_12",
/// "trace_3.json"; -1 if there is none.
std::int32_t rank_in_name(const std::string& file);

/// Reads every dump in the folder, twice where calls before the last ones must be known. One that
/// makes no sense is told in Run::missing. Errors: kMalformedHistory if none can be read, kUsage if
/// none says of which rank it is.
Result<Run> open_dumps(const std::string& path);

}  // namespace lockstep::history
