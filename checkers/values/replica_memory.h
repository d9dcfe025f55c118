// How much more memory the first of several replicas in one process holds at the peak than any
// other. It measures; nothing is declared about it.
#pragma once

#include "harness/model/job.h"

namespace lockstep::checkers {

class ReplicaMemory : public Checker {
 public:
  [[nodiscard]] std::string_view name() const override { return "replica-memory"; }
  [[nodiscard]] Verdict check(const Job& job) const override;
};

}  // namespace lockstep::checkers
