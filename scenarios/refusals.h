// Inputs that cannot give a right result: is that said, by every rank, instead of computed?
#pragma once

#include "scenarios/scenario.h"

namespace lockstep {

class RefusedInputs : public Scenario {
 public:
  [[nodiscard]] std::string_view name() const override { return "refusals"; }
  [[nodiscard]] std::string_view question() const override;
  [[nodiscard]] std::vector<Case> cells() const override;
  [[nodiscard]] std::vector<Case> cells(const Subject& subject) const override;
  [[nodiscard]] Result<void> converse(Conversation& talk, const Case& cell) const override;
};

}  // namespace lockstep
