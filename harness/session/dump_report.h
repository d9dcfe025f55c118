// The report on a folder of Flight Recorder dumps.
#pragma once

#include "harness/history/run.h"
#include "harness/verdict/report.h"

namespace lockstep::session {

/// Status 1: a finding. 2: a call stands still, and why does not show. 0: neither.
Report dump_report(const Run& run);

}  // namespace lockstep::session
