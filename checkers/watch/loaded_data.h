// What the loops of a watched job received of their DataLoaders: LS411 (all ranks read the same and
// computed the same), LS412 (a sampler's shares are cut down on their way to the loop), LS414 (a
// shuffled order is that of the epoch before).
#pragma once

#include "harness/model/job.h"

namespace lockstep::checkers {

class LoadedData : public Checker {
 public:
  [[nodiscard]] std::string_view name() const override { return "loaded-data"; }
  [[nodiscard]] Verdict check(const Job& job) const override;
};

}  // namespace lockstep::checkers
