// LS506 of programs that are watched and reduce their gradients themselves: a gradient is the sum
// of what the ranks handed in, or the mean; of one optimizer all are the same.
#pragma once

#include "harness/model/job.h"

namespace lockstep::checkers {

class GradientSums : public Checker {
 public:
  [[nodiscard]] std::string_view name() const override { return "gradient-sums"; }
  [[nodiscard]] Verdict check(const Job& job) const override;
};

}  // namespace lockstep::checkers
