// LS406 of programs that are watched: a module has the same tensors in the same order on all ranks
// when DistributedDataParallel is put around it.
#pragma once

#include "harness/model/job.h"

namespace lockstep::checkers {

class WrappedModules : public Checker {
 public:
  [[nodiscard]] std::string_view name() const override { return "wrapped-modules"; }
  [[nodiscard]] Verdict check(const Job& job) const override;
};

}  // namespace lockstep::checkers
