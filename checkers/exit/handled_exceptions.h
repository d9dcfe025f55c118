// Exceptions that ranks are handling while they wait for others: a barrier in a `finally` or an
// `except`. Nothing is printed of them as long as the wait lasts.
#pragma once

#include <vector>

#include "harness/verdict/verdict.h"

namespace lockstep::checkers {

struct Handled {
  Rank rank{};
  const StackSample* seen{};
  bool passes_on{};  ///< In a `finally`: the rank fails as soon as that is done.
};

/// Of the ranks' main threads, where they were seen after their last call. Not those that speak of
/// another rank: these are consequences.
std::vector<Handled> handled_by(const Run& run);

/// What took the culprits out of their way is the cause. Where nobody is named and some ranks, not
/// all, are about to fail, these are. Otherwise it is evidence.
void tell_what_is_handled(const Run& run, Finding& finding);

}  // namespace lockstep::checkers
