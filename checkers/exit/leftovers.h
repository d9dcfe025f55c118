// What a job leaves behind: processes that outlive it (LS104), shared memory and locks (LS106),
// temporary directories (LS106, a note), and children that nobody asked for after they had ended
// (LS105, a warning).
#pragma once

#include "harness/model/job.h"

namespace lockstep::checkers {

class Leftovers final : public Checker {
 public:
  [[nodiscard]] std::string_view name() const override { return "leftovers"; }
  [[nodiscard]] Verdict check(const Job& job) const override;
};

/// The failure of this rank was noticed late: its launcher was waiting for another process by name
/// (LS109). Empty if it was not.
std::string noticed_late(const Run& run, Rank rank);

}  // namespace lockstep::checkers
