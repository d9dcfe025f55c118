// The matrix that closes a suite: what was asked of which implementation, and what came of it.
#pragma once

#include <string>

#include "harness/report/human.h"
#include "harness/verdict/report.h"

namespace lockstep::report {

/// Implementation by scenario: cases passed, or "passed/run" where not all did, and the mutants
/// that were caught; below it, why a question is not asked. Nothing for fewer than two scenarios.
std::string matrix_text(const Report& report, const HumanOptions& options);

}  // namespace lockstep::report
