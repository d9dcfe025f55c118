// LS213: a collective on a tensor with gaps, of a backend that handles what lies in memory instead.
#pragma once

#include "harness/model/job.h"

namespace lockstep::checkers {

class TensorsWithGaps : public Checker {
 public:
  [[nodiscard]] std::string_view name() const override { return "tensors-with-gaps"; }
  [[nodiscard]] Verdict check(const Job& job) const override;
};

}  // namespace lockstep::checkers
