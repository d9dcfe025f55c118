// The report of one job (`lockstep run`) from its closed run. `run` and `check` make the same call,
// so they cannot disagree.
#pragma once

#include <string>
#include <vector>

#include "harness/base/error.h"
#include "harness/history/run.h"
#include "harness/model/worlds.h"
#include "harness/verdict/report.h"

namespace lockstep::session {

struct JudgedJob {
  Report report{};
  std::vector<World> worlds{};  ///< What it is about.
};

/// Judges a closed run that is no case of a suite, exit status included.
JudgedJob judged_job(Run run);
Report job_report(Run run);

/// The world that a finding is about; null if that is not said.
const Run* run_of(const std::vector<World>& worlds, const Finding& finding);

/// The names that --require takes.
std::vector<std::string> check_names();

}  // namespace lockstep::session
