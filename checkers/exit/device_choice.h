// Devices that were chosen too late or not at all (LS110, a warning): CUDA_VISIBLE_DEVICES was
// changed after CUDA had been initialised, and the process goes on with those that it had; or all
// ranks of a host work on its first GPU, although there is one for each.
#pragma once

#include "harness/verdict/verdict.h"

namespace lockstep::checkers {

class Devices final : public Checker {
 public:
  [[nodiscard]] std::string_view name() const override { return "devices"; }
  [[nodiscard]] Verdict check(const Run& run) const override;
};

}  // namespace lockstep::checkers
