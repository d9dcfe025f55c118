// Where the replicas of a parameter part for good, and what the steps around it say of why.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "harness/model/watched_series.h"
#include "harness/verdict/codes.h"
#include "harness/verdict/verdict.h"

namespace lockstep::checkers {

struct Parting {
  const WatchedSeries* series{};
  std::size_t first{};  ///< Index of the first sight from which on they never meet again.
  Code code{};          ///< kNone: too little was seen after it to say anything.
  Severity severity{};
  std::size_t told_at{};  ///< The sight that the code is about: `first`, or the one before it.
  double apart{};         ///< The largest distance from there on.
  std::string why{};

  [[nodiscard]] const WatchedSight& sight() const { return series->sights[told_at]; }
};

/// Of the reducer's own making: in backward, or in DistributedDataParallel's forward.
bool is_of_replica(const CallSite& site);

/// The line that made the module of `tensor`, which `member` has.
void add_site_of_module(const Member& member, const WatchedTensor& tensor, Finding& finding);

/// What numbers are moved as: where it speaks against a fault, in fewer bits, or pickled, too.
enum class As : std::uint8_t { kFloats, kAnything };

/// Between the two a member moved as many numbers as the tensor has, and not for the reducer:
/// whoever averages them by himself does.
bool may_have_averaged(const WatchedSeries& series, As as, std::uint64_t since_ns,
                       std::uint64_t until_ns = kNeverNs);

/// The gradients given were averaged over all: none of them is zero, and all are the same.
bool was_reduced(const WatchedSight& sight);

/// What is known of the module that a parameter is of.
enum class Reduced : std::uint8_t {
  kNever,   ///< Who never reduces anything may mean it.
  kBefore,  ///< By another optimizer, which had ended: ranks that are trained alone from there on.
  kNoMore,  ///< Nothing of the module was reduced from some step on: ranks go on alone, or forgot.
  kYes,
};

/// None where they meet again, or nothing says that they were to be equal.
std::optional<Parting> parting_of(const WatchedSeries& series, Reduced replica);

}  // namespace lockstep::checkers
