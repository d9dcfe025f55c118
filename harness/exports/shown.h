// Whether a program that makes the calls again can show a finding.
#pragma once

#include <optional>
#include <string>

#include "harness/exports/replay.h"

namespace lockstep::exports {

/// A refusal: what there is, what is needed, the next step.
Error refused(const std::string& have, const std::string& need);

/// As the program calls it: a coalesced operation as its plain form, AVG (which Gloo has in few
/// versions) and sums with a factor as SUM, an element type that it has no name for as float32.
ReplayCall as_made_again(ReplayCall call);

/// Why no list of calls can; nothing if one can.
std::optional<Error> no_calls_show(const Finding& finding);

/// Why these calls do not; nothing if they do.
std::optional<Error> not_shown(const Replay& replay, const Finding& finding);

}  // namespace lockstep::exports
