// uneven-batches: ranks have different numbers of batches. Joined, those that have run out shadow
// the others, gradients are divided as declared and all end in one state; or all refuse as soon as
// one has run out. Where nobody shadows, the others wait for ever, and it is said for whom.
#pragma once

#include "scenarios/scenario.h"

namespace lockstep {

class UnevenBatches final : public Scenario {
 public:
  [[nodiscard]] std::string_view name() const override { return "uneven-batches"; }
  [[nodiscard]] std::string_view question() const override;
  [[nodiscard]] std::vector<Case> cells() const override;
  [[nodiscard]] std::vector<std::pair<std::string, std::string>> not_applicable() const override;
  [[nodiscard]] Result<void> converse(Conversation& talk, const Case& cell) const override;
};

}  // namespace lockstep
