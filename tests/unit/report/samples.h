// Reports, typed in full: one for every kind of ending that the forms must show well.
#pragma once

#include <string>
#include <vector>

#include "harness/verdict/report.h"

namespace lockstep::testing {

Report healthy_run();
Report hang();
Report mismatch();
Report killed();
Report interrupted();
Report healthy_suite();
Report failing_suite();
/// Strings that no terminal, JSON reader or XML parser should be trusted with, and 512 ranks.
Report hostile();

struct Sample {
  std::string name{};
  Report report{};
  std::string directory{};
};

std::vector<Sample> all_samples();

}  // namespace lockstep::testing
