// A standalone Python program that makes the calls of a run again.
#pragma once

#include <string>

#include "harness/exports/replay.h"

namespace lockstep::exports {

struct ProgramHead {
  std::string run{};      ///< Its id.
  std::string version{};  ///< Of lockstep.
  bool fixed{};
};

/// Functions and loops of the source are there again, as far as they are around calls: which of
/// them a rank goes through, its plan says.
std::string render_program(const Replay& replay, const Finding& finding, const ProgramHead& head);

}  // namespace lockstep::exports
