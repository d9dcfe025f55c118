// Are the losses of the parts of one process's batch combined as declared: as a plain mean of the
// parts' means, or as the mean over all samples? Tells how far the two are apart, too.
#pragma once

#include "harness/model/job.h"

namespace lockstep::checkers {

class LossWeighting : public Checker {
 public:
  [[nodiscard]] std::string_view name() const override { return "loss-weighting"; }
  [[nodiscard]] Verdict check(const Job& job) const override;
};

}  // namespace lockstep::checkers
