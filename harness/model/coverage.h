// What of a run is on record. That something is absent proves only something where it would be.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "harness/history/run.h"
#include "harness/verdict/verdict.h"

namespace lockstep {

/// The journal of the supervisor says all that happened so far: absence of a record is absence of
/// the event.
inline bool journal_is_whole(const Run& run) { return run.live || run.journal_complete; }

/// Why the absence of an event proves nothing (yet); empty where it does.
Reason why_open(const Run& run);

/// Something that is not on record.
struct Gap {
  Code code{};         ///< LS901, or LS902 where events were dropped.
  std::string what{};  ///< "rank 1 has no history".
};

std::vector<Gap> gaps_of(const Run& run);

/// "LS901: group dp was met late on rank 1": the evidence that a check lacks, as its reason.
Reason incomplete(std::string_view what);
Reason lacking(Code code, std::string_view what);

}  // namespace lockstep
