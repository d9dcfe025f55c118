// LS402 of programs that are watched: buffers that DistributedDataParallel sends to all are equal
// after that; and, as notes, running statistics that part.
#pragma once

#include "harness/model/job.h"

namespace lockstep::checkers {

class SentBuffers : public Checker {
 public:
  [[nodiscard]] std::string_view name() const override { return "buffers"; }
  [[nodiscard]] Verdict check(const Job& job) const override;
};

}  // namespace lockstep::checkers
