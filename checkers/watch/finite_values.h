// LS423: the values of a module that is watched stay finite.
#pragma once

#include "harness/model/job.h"

namespace lockstep::checkers {

class FiniteValues : public Checker {
 public:
  [[nodiscard]] std::string_view name() const override { return "finite"; }
  [[nodiscard]] Verdict check(const Job& job) const override;
};

}  // namespace lockstep::checkers
