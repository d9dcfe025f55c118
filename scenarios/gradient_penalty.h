// Is the gradient of a critic with a gradient penalty what one process computes, second derivatives
// included, whatever wraps the critic and normalises in it?
#pragma once

#include "scenarios/scenario.h"

namespace lockstep {

class GradientPenalty : public Scenario {
 public:
  [[nodiscard]] std::string_view name() const override { return "gradient-penalty"; }
  [[nodiscard]] std::string_view question() const override;
  [[nodiscard]] std::vector<Case> cells() const override;
  [[nodiscard]] std::vector<Case> cells(const Subject& subject) const override;
  [[nodiscard]] Result<void> converse(Conversation& talk, const Case& cell) const override;
};

}  // namespace lockstep
