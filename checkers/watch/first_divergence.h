// What is told at once of a job that is watched.
#pragma once

#include <optional>
#include <string>

#include "harness/history/run.h"

namespace lockstep::checkers {

/// The headline of the first error that the values watched so far show; none if there is none.
std::optional<std::string> first_divergence(const Run& live);

}  // namespace lockstep::checkers
