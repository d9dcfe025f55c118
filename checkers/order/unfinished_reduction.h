// Did a rank leave out the reduction of a gradient in its backward? DistributedDataParallel says so
// only at the next forward, and only on that rank: an exception that is a consequence (LS208).
#pragma once

#include "harness/verdict/verdict.h"

namespace lockstep::checkers {

class UnreducedGradients : public Checker {
 public:
  [[nodiscard]] std::string_view name() const override { return "unreduced-gradients"; }
  [[nodiscard]] Verdict check(const Run& run) const override;
};

}  // namespace lockstep::checkers
