// LS508: where it is declared that no replica in one process holds much more memory than the
// others, the first one does not. How much more it holds at the peak is measured in any case.
#pragma once

#include "harness/model/job.h"

namespace lockstep::checkers {

class ReplicaMemory : public Checker {
 public:
  [[nodiscard]] std::string_view name() const override { return "replica-memory"; }
  [[nodiscard]] Verdict check(const Job& job) const override;
};

}  // namespace lockstep::checkers
