// gradient-equivalence: after backward, every rank holds the gradient that one process computes
// from all the ranks' rows, weighted as the implementation's contract declares.
#pragma once

#include "scenarios/scenario.h"

namespace lockstep {

class GradientEquivalence final : public Scenario {
 public:
  [[nodiscard]] std::string_view name() const override { return "gradient-equivalence"; }
  [[nodiscard]] std::string_view question() const override;
  [[nodiscard]] std::vector<Case> cells() const override;
  [[nodiscard]] std::vector<Case> cells(const Subject& subject) const override;
  [[nodiscard]] Result<void> converse(Conversation& talk, const Case& cell) const override;
};

}  // namespace lockstep
