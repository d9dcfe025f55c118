// LS507: what cannot be right is refused, by every rank, and the refusal says what it is about. The
// options of the case say which message is to be refused (`refuses`) and what the text of a rank
// must name (`naming`). LS510: nothing is refused where the case is right.
#pragma once

#include "harness/model/job.h"

namespace lockstep::checkers {

class Refusals : public Checker {
 public:
  [[nodiscard]] std::string_view name() const override { return "refusals"; }
  [[nodiscard]] Verdict check(const Job& job) const override;
};

}  // namespace lockstep::checkers
