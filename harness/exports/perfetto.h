// A run as a trace that ui.perfetto.dev opens: a track of each rank, in it one of each group, a
// slice of each call, and arrows between the ranks that made it together.
#pragma once

#include <string>
#include <vector>

#include "harness/base/error.h"
#include "harness/model/worlds.h"
#include "harness/verdict/report.h"

namespace lockstep::exports {

/// Bytes of a perfetto.protos.Trace. Errors: kUsage where no calls are on record.
Result<std::string> render_perfetto(const Report& report, const std::vector<World>& worlds);

}  // namespace lockstep::exports
