// Is there a gradient where there must be one, and none where there must be none? LS501. To an
// optimizer with momentum or weight decay zeros are not the same as nothing.
//
// What a step's reference has a gradient for, every rank has. What it has none for nobody used: by
// the contract word `unused` that has "none" or "zero" on every rank.
#pragma once

#include "harness/model/job.h"

namespace lockstep::checkers {

class GradientPresence : public Checker {
 public:
  [[nodiscard]] std::string_view name() const override { return "gradient-presence"; }
  [[nodiscard]] Verdict check(const Job& job) const override;
};

}  // namespace lockstep::checkers
