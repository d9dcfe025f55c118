// All checkers over one run, and what remains of their findings: one per divergence, the first one
// first.
#pragma once

#include <memory>
#include <vector>

#include "harness/model/job.h"

namespace lockstep::checkers {

using Checkers = std::vector<std::unique_ptr<Checker>>;

/// Every checker, in the order in which they are reported.
Checkers all_checkers();

struct Judgement {
  std::vector<Verdict> verdicts{};  ///< As each checker said, with its own findings.
  std::vector<Finding>
      findings{};  ///< One per divergence: what follows from it is in `also` or counted.
  Outcome outcome{Outcome::kUndecided};
};

/// "after it, LS106: ...".
void tell_later(const Finding& later, Finding& first);

/// Pure: the same run gives the same judgement. A checker that throws is undecided (LS903).
Judgement judge(const Run& run, const Checkers& checkers);

}  // namespace lockstep::checkers
