// A finished run, read and judged once: a job, a suite or a case of one, or a folder of dumps.
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
  bool of_dumps{};              ///< Somebody else's: their folder is only read.
};

Result<JudgedRun> judged_run(const std::string& directory);

}  // namespace lockstep::cli
