// Did a rank leave a loop that the others stayed in? LS305: after whole repetitions of its pattern
// of calls, its work ran out. LS306: from inside the body. Recognised from the lines that the calls
// come from, again and again; of programs only, since in the suite the scenario's plan decides.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "harness/model/group_view.h"
#include "harness/model/job.h"

namespace lockstep::checkers {

class LoopExit : public Checker {
 public:
  [[nodiscard]] std::string_view name() const override { return "loop-exit"; }
  [[nodiscard]] Verdict check(const Job& job) const override;
};

/// The same call from the same line; a call whose line is not known is like no other.
bool is_same_call(const Member& member, std::uint64_t a, std::uint64_t b);

/// What one rank repeated before a place, as far as it can be told.
struct Repetition {
  std::uint64_t begin{};   ///< Sequence number of the first call of the run of repetitions.
  std::uint64_t period{};  ///< Calls of one repetition.
};

/// The shortest pattern that the calls before `seq` repeat at least twice and that the call at
/// `seq` continues. None if a record or a call site is missing there.
std::optional<Repetition> repetition_before(const Member& member, std::uint64_t seq);

}  // namespace lockstep::checkers
