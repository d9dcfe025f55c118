// DeviceChoice that were chosen too late or not at all (LS110, a warning): CUDA_VISIBLE_DEVICES was
// changed after CUDA had been initialised, and the process goes on with those that it had; or all
// ranks of a host work on its first GPU, although there is one for each.
#pragma once

#include "harness/model/job.h"

namespace lockstep::checkers {

class DeviceChoice final : public Checker {
 public:
  [[nodiscard]] std::string_view name() const override { return "devices"; }
  [[nodiscard]] Verdict check(const Job& job) const override;
};

}  // namespace lockstep::checkers
