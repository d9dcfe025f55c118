// Do replicas hold the same values where they must? LS401 parameters, LS402 buffers at entry of
// forward, LS404 optimizer state, LS406 values right after wrapping. Compared exactly, by name.
#pragma once

#include "harness/model/job.h"

namespace lockstep::checkers {

class ReplicaEquality : public Checker {
 public:
  [[nodiscard]] std::string_view name() const override { return "replica-equality"; }
  [[nodiscard]] Verdict check(const Job& job) const override;
};

}  // namespace lockstep::checkers
