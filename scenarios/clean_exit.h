// clean-exit: after success, an exception, an exit or a kill in any phase, every host is reaped,
// its end is on record with its true status, and what is found is the fault that was asked for and
// nothing else.
#pragma once

#include "scenarios/scenario.h"

namespace lockstep {

class CleanExit final : public Scenario {
 public:
  [[nodiscard]] std::string_view name() const override { return "clean-exit"; }
  [[nodiscard]] std::string_view question() const override;
  [[nodiscard]] std::vector<Case> cells() const override;
  [[nodiscard]] std::vector<Case> cells(const Subject& subject) const override;
  [[nodiscard]] std::vector<std::pair<std::string, std::string>> not_applicable() const override;
  [[nodiscard]] Result<void> converse(Conversation& talk, const Case& cell) const override;
};

}  // namespace lockstep
