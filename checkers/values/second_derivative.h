// Does a gradient penalty train? A layer without a second derivative raises, or its penalty is a
// constant: then every gradient is that of the loss without the penalty.
#pragma once

#include <string_view>

#include "harness/model/job.h"

namespace lockstep::checkers {

class SecondDerivative : public Checker {
 public:
  [[nodiscard]] std::string_view name() const override { return "second-derivative"; }
  [[nodiscard]] Verdict check(const Job& job) const override;
};

}  // namespace lockstep::checkers
