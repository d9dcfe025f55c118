// Did a rank leave out the reduction of a gradient in its backward? DistributedDataParallel says so
// only at the next forward, and only on that rank: an exception that is a consequence (LS208).
#pragma once

#include "harness/model/job.h"

namespace lockstep::checkers {

class UnfinishedReduction : public Checker {
 public:
  [[nodiscard]] std::string_view name() const override { return "unreduced-gradients"; }
  [[nodiscard]] Verdict check(const Job& job) const override;
};

}  // namespace lockstep::checkers
