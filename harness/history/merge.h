// The events of all processes of a run in one order: each process's own, and between processes what
// matched collectives force (nobody gets a result before everybody it needs has called). Clocks of
// different hosts are never compared; processes of one host are otherwise taken by time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

#include "harness/history/run.h"

namespace lockstep::history {

struct MergedEvent {
  enum class Kind : std::uint8_t { kIssued, kReturned, kCompleted };
  Kind kind{};
  std::size_t process{};     ///< Index into Run::processes.
  std::size_t collective{};  ///< Index into its collectives.
  std::uint64_t at_ns{};     ///< On that process's host.
};

/// Calls `take` for every event until it returns false. Where recorded times contradict a match (a
/// broken file), the event comes in time order all the same: nothing is left out. Returns the
/// number of events given.
std::uint64_t merge(const Run& run, const std::function<bool(const MergedEvent&)>& take);

}  // namespace lockstep::history
