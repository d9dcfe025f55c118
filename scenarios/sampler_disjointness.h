// sampler-disjointness: over several datasets and epochs, what a sampler gives to all ranks
// together is what it declares. Nothing is trained, and ranks do not communicate.
#pragma once

#include "scenarios/scenario.h"

namespace lockstep {

class SamplerDisjointness final : public Scenario {
 public:
  [[nodiscard]] std::string_view name() const override { return "sampler-disjointness"; }
  [[nodiscard]] std::string_view question() const override;
  [[nodiscard]] std::vector<Case> cells() const override;
  [[nodiscard]] std::vector<Case> cells(const Subject& subject) const override;
  [[nodiscard]] std::vector<std::pair<std::string, std::string>> not_applicable() const override;
  [[nodiscard]] Result<void> converse(Conversation& talk, const Case& cell) const override;
};

}  // namespace lockstep
