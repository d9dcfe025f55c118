// Are the gradients those that a single process computes for the declared contract? LS501, LS506
// for one factor, LS403 where ranks disagree although the gradient was reduced, LS407 where it
// never was.
//
// Reference observations: variant "" (or "x64") is right; "x1/0", "x1/1", ... are single-process
// runs of the tested type over permuted samples (rule "precision"); "local" with a rank is that
// rank's own gradient; any other variant is the arithmetic of a known mistake, and only gives the
// power of the comparison.
#pragma once

#include "harness/model/job.h"

namespace lockstep::checkers {

class GradientReference : public Checker {
 public:
  [[nodiscard]] std::string_view name() const override { return "gradient-reference"; }
  [[nodiscard]] Verdict check(const Job& job) const override;
};

}  // namespace lockstep::checkers
