// LS301, LS302, LS307 from dumps of Flight Recorders alone: which call stands still, and which rank
// did not come to it. A rank that waits in a call itself is explained by whoever it waits for, so
// of several groups that stand still the one is told whose missing call explains the others.
//
// Nothing in a dump says how long it had waited; the time at which its file was written does.
#pragma once

#include "harness/model/job.h"

namespace lockstep::checkers {

class RecordedWaits final : public Checker {
 public:
  [[nodiscard]] std::string_view name() const override { return "recorded-waits"; }
  [[nodiscard]] Verdict check(const Job& job) const override;
};

}  // namespace lockstep::checkers
