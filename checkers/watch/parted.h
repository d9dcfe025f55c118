// Where the replicas of a parameter part for good, and what the steps around it say of why.
#pragma once

#include <cstddef>
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

/// The gradients given at some step were averaged over all: not zero, and the same everywhere.
bool was_ever_reduced(const WatchedSeries& series);

/// None where they meet again, or nothing says that they were to be equal. `replica_is_reduced`:
/// something of its replica was ever reduced; who never reduces anything may mean it.
std::optional<Parting> parting_of(const WatchedSeries& series, bool replica_is_reduced);

}  // namespace lockstep::checkers
