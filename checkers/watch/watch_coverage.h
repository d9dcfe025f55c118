// How much of a run was watched, and what was not.
#pragma once

#include <string>

#include "harness/history/run.h"

namespace lockstep::checkers {

struct WatchCoverage {
  bool asked{};            ///< The run was to be watched.
  std::string text{};      ///< "watched 37 of 5,000 steps, 0.8 % of the time from step 17 on".
  std::string not_seen{};  ///< "; not seen: ...", or nothing.
  std::string why_nothing{};
};

WatchCoverage watch_coverage(const Run& run);

}  // namespace lockstep::checkers
