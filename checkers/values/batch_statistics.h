// Are batch statistics those of all ranks' rows together, where that is declared (contract
// statistics = global)? LS502: what a batch normalisation gave is not what one process gives from
// the concatenated batch. LS505: its running values after the forward are not.
//
// Observations in phase "after_forward/K": "norm/LAYER", the rank's rows, with a reference for each
// rank; "buffer/NAME", with one reference for all. Reference variants: as for gradient-reference,
// but only those called "statistics/..." are mistakes in what is compared here, and give the power.
#pragma once

#include "harness/model/job.h"

namespace lockstep::checkers {

class BatchStatistics : public Checker {
 public:
  [[nodiscard]] std::string_view name() const override { return "batch-statistics"; }
  [[nodiscard]] Verdict check(const Job& job) const override;
};

}  // namespace lockstep::checkers
