// How many elements the ranks reduced in a step: what is missing of the model's was in no bucket.
#pragma once

#include <cstdint>
#include <set>
#include <string>

#include "harness/history/run.h"

namespace lockstep::checkers {

struct Reduced {
  std::uint64_t elements{};  ///< Of floating point, all-reduced by every rank alike in the step.
  bool known{};              ///< Every rank's history of the step is there.
};

/// Counts what each rank issued between the last observation of an earlier step and the first
/// gradient of this.
Reduced reduced_elements(const Run& run, std::int64_t step);

std::uint64_t elements_of(const Plan& plan);

/// The elements reduced are the model's without exactly these gradients ("grad/NAME").
bool lacks_exactly(const Plan& plan, const Reduced& reduced,
                   const std::set<std::string>& gradients);

}  // namespace lockstep::checkers
