// Does a gradient penalty train? A layer without a second derivative raises, or its penalty is a
// constant: then every gradient is that of the loss without the penalty.
#pragma once

#include <string_view>

#include "harness/verdict/verdict.h"

namespace lockstep::checkers {

class SecondDerivative : public Checker {
 public:
  [[nodiscard]] std::string_view name() const override { return "second-derivative"; }
  [[nodiscard]] Verdict check(const Run& run) const override;
};

/// Whether an exception's text is that of a derivative that does not exist, in a run that asks for
/// a penalty.
bool says_no_derivative(const Run& run, std::string_view text);

}  // namespace lockstep::checkers
