// Is everything that happened on record? States what is missing (LS901, LS902, LS904) and blames
// nobody.
#pragma once

#include "harness/model/job.h"

namespace lockstep::checkers {

class HistoryComplete : public Checker {
 public:
  [[nodiscard]] std::string_view name() const override { return "history"; }
  [[nodiscard]] Verdict check(const Job& job) const override;
};

}  // namespace lockstep::checkers
