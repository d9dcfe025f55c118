// LS401, LS403, LS404, LS407 of programs that are watched: the replicas of a module stay equal.
#pragma once

#include "harness/model/job.h"

namespace lockstep::checkers {

class ReplicaDrift : public Checker {
 public:
  [[nodiscard]] std::string_view name() const override { return "replicas"; }
  [[nodiscard]] Verdict check(const Job& job) const override;
};

}  // namespace lockstep::checkers
