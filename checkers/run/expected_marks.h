// Did what the case is about really happen? Every mark that the plan expects must be in the
// history.
#pragma once

#include "harness/verdict/verdict.h"

namespace lockstep::checkers {

class Marks : public Checker {
 public:
  [[nodiscard]] std::string_view name() const override { return "marks"; }
  [[nodiscard]] Verdict check(const Run& run) const override;
};

}  // namespace lockstep::checkers
