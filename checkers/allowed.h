// What the user says is meant: `--allow CODE@FILE:FUNCTION`, or a line of lockstep.allow with its
// reason behind it.
#pragma once

#include <string>
#include <vector>

#include "harness/history/plan.h"
#include "harness/verdict/verdict.h"

namespace lockstep::checkers {

struct Allowed {
  std::string code{}, file{}, function{};
  std::string reason{};
};

/// Those of the plan; a line that is none is left out.
std::vector<Allowed> allowed_in(const Plan& plan);

/// Findings of such a code at such a line become notes that say so, and a check without any other
/// error passes.
void allow(const std::vector<Allowed>& allowed, Verdict& verdict);

}  // namespace lockstep::checkers
