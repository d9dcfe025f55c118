// Did what the case is about really happen? Every mark that the plan expects must be in the
// history.
#pragma once

#include "harness/model/job.h"

namespace lockstep::checkers {

class ExpectedMarks : public Checker {
 public:
  [[nodiscard]] std::string_view name() const override { return "marks"; }
  [[nodiscard]] Verdict check(const Job& job) const override;
};

}  // namespace lockstep::checkers
