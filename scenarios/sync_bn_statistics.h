// sync-bn-statistics: batch normalisation over all ranks' rows is that of one process.
#pragma once

#include "scenarios/scenario.h"

namespace lockstep {

class SyncBnStatistics : public Scenario {
 public:
  [[nodiscard]] std::string_view name() const override { return "sync-bn-statistics"; }
  [[nodiscard]] std::string_view question() const override;
  [[nodiscard]] std::vector<Case> cells() const override;
  [[nodiscard]] std::vector<Case> cells(const Subject& subject) const override;
  [[nodiscard]] std::vector<std::pair<std::string, std::string>> not_applicable() const override;
  [[nodiscard]] Result<void> converse(Conversation& conversation, const Case& cell) const override;
};

}  // namespace lockstep
