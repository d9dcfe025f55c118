// LS213, and LS211 and LS212 of programs that are watched: tensors that are changed while a
// collective uses them, and what a reduce left on a rank that is not its root, handed on.
#pragma once

#include "harness/model/job.h"

namespace lockstep::checkers {

class CollectiveTensors : public Checker {
 public:
  [[nodiscard]] std::string_view name() const override { return "collective-tensors"; }
  [[nodiscard]] Verdict check(const Job& job) const override;
};

}  // namespace lockstep::checkers
