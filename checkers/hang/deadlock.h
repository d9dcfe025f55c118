// Is the job stuck for ever? Proves it from what every process waits for, or does not claim it.
#pragma once

#include <optional>
#include <string>

#include "harness/model/job.h"

namespace lockstep::checkers {

class Deadlock : public Checker {
 public:
  [[nodiscard]] std::string_view name() const override { return "deadlock"; }
  [[nodiscard]] Verdict check(const Job& job) const override;
};

/// Why a running job can never go on, in one line; none unless it is certain. Judged by the same
/// rule as the closed run, so that what ended a job is what the report says. The histories must
/// have been read after the last state sample was taken: a call may have returned meanwhile. While
/// a rank still moves that is not part of it, the answer is held back for a few seconds: where it
/// comes to rest tells who is at fault.
std::optional<std::string> certain_deadlock(const Run& run);

}  // namespace lockstep::checkers
