// How the processes of a run ended at last.
#pragma once

#include <cstdint>
#include <map>

#include "harness/history/run.h"

namespace lockstep::session {

inline constexpr std::int32_t kKilledBySignal = 128;  // As a shell says it.

inline std::int32_t shell_status(const ProcessEnd& end) {
  return end.signal ? kKilledBySignal + *end.signal : end.exit_status.value_or(0);
}

/// The last end of each rank: one that was started again counts as it ended at last.
inline std::map<Rank, const ProcessEnd*> rank_ends(const Run& run) {
  std::map<Rank, const ProcessEnd*> ends;
  for (const ProcessEnd& end : run.ends) {
    if (end.role == Role::kRank && end.rank)
      ends[*end.rank] = &end;
  }
  return ends;
}

}  // namespace lockstep::session
