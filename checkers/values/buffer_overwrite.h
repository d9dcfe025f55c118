// Does a module keep the buffers that its forward has left? Between a forward and the end of its
// step nobody may write other values into them; where replicas are evaluated side by side, those of
// the first one survive.
#pragma once

#include "harness/model/job.h"

namespace lockstep::checkers {

class BufferOverwrite : public Checker {
 public:
  [[nodiscard]] std::string_view name() const override { return "kept-buffers"; }
  [[nodiscard]] Verdict check(const Job& job) const override;
};

}  // namespace lockstep::checkers
