// How did the ranks end? LS101: one died first (signal, status, exception). LS102: one left while
// the others still needed it. What follows from the first end is counted, and signals of our own
// never count.
#pragma once

#include <string_view>

#include "harness/model/job.h"

namespace lockstep::checkers {

/// Evidence of LS108.
inline constexpr std::string_view kHidden = "the command that started it ended with status 0";

class RankFailed : public Checker {
 public:
  [[nodiscard]] std::string_view name() const override { return "process-end"; }
  [[nodiscard]] Verdict check(const Job& job) const override;
};

}  // namespace lockstep::checkers
