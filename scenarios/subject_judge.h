// What is said of a subject's case beyond what the checkers say: whether its collectives were seen,
// at which lines of the user's it issues them, and that what it does not declare is not held
// against it.
#pragma once

#include <string>

#include "harness/history/run.h"
#include "scenarios/scenario.h"
#include "scenarios/suite.h"

namespace lockstep {

/// Why nothing can be said of the subject: a rank of it was seen to issue no collective. Empty
/// otherwise, and of samplers.
std::string unseen_subject(const Case& cell, const Run& run);

/// To each finding where the subject is defined, and where it reduces.
void add_lines(const Run& run, CaseReport& report);

/// Of a case that asks for more than is declared: a failure becomes its reason.
void soften(const Case& cell, CaseReport& report);

}  // namespace lockstep
