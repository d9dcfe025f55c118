// LS411-LS425: what a sampler gives to all ranks together is what it declares: shares disjoint and
// complete, equally long, as long as promised, dealt out in the declared order, and batched as
// declared.
#pragma once

#include "harness/model/job.h"

namespace lockstep::checkers {

class SamplerContract : public Checker {
 public:
  [[nodiscard]] std::string_view name() const override { return "sampler-shards"; }
  [[nodiscard]] Verdict check(const Job& job) const override;
};

}  // namespace lockstep::checkers
