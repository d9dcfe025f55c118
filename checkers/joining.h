// Did every rank come to init_process_group? LS107: some wait there for one that has not, when the
// limit that the user set ended the run. It is no collective yet, so only their stacks show it.
#pragma once

#include "harness/verdict/verdict.h"

namespace lockstep::checkers {

class Joining : public Checker {
 public:
  [[nodiscard]] std::string_view name() const override { return "joining"; }
  [[nodiscard]] Verdict check(const Run& run) const override;
};

}  // namespace lockstep::checkers
