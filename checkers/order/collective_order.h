// Do the members of every group issue the same collectives in the same order? Reports the first
// divergence of each group: LS201 to LS209, and LS210 where a send and its receive cannot match.
#pragma once

#include "harness/model/job.h"

namespace lockstep::checkers {

class CollectiveOrder : public Checker {
 public:
  [[nodiscard]] std::string_view name() const override { return "collective-order"; }
  [[nodiscard]] Verdict check(const Job& job) const override;
};

}  // namespace lockstep::checkers
