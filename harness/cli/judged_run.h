// A finished run, read and judged once: a job, on one host or on several, a suite or a case of one,
// or a folder of dumps.
#pragma once

#include <string>
#include <vector>

#include "harness/base/error.h"
#include "harness/model/worlds.h"
#include "harness/verdict/report.h"

namespace lockstep::cli {

struct JudgedRun {
  Report report{};
  std::vector<World> worlds{};  ///< Of a job or of dumps; none of a suite.
  bool only_read{};             ///< Of dumps, or of several hosts: no folder is the report's.
};

/// `directories`: one; or the runs of one job that each host recorded.
Result<JudgedRun> judged_run(const std::vector<std::string>& directories);

}  // namespace lockstep::cli
