// Devices that were chosen too late (LS110, a warning): CUDA_VISIBLE_DEVICES was changed after CUDA
// had been initialised, and the process goes on with those that it had.
#pragma once

#include "harness/verdict/verdict.h"

namespace lockstep::checkers {

class LateDeviceChoice final : public Checker {
 public:
  [[nodiscard]] std::string_view name() const override { return "late-devices"; }
  [[nodiscard]] Verdict check(const Run& run) const override;
};

}  // namespace lockstep::checkers
