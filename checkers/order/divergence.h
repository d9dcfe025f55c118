// The first place at which members of a group issue different calls, as a finding.
#pragma once

#include <optional>
#include <vector>

#include "harness/model/group_view.h"

namespace lockstep::checkers {

struct At {
  const Member* member{};
  const Collective* call{};
};

/// The members whose call at `seq` is known.
std::vector<At> calls_at(const GroupView& group, std::uint64_t seq);

/// The finding for calls at `seq` that do not agree: what differs, who is at fault if the evidence
/// says, and whether it is a call too many, left out, or swapped.
Finding divergence(const Run& run, const GroupView& group, std::uint64_t seq);

/// Two lines that every member ran at `seq` and the next place, in opposite order, with equal
/// calls: nothing fails, and what is sent from one is taken for the other. Ranks may take turns by
/// rights
/// (`if step % 2 == rank`), so two ranks are believed only if they once ran both lines in the same
/// order.
std::optional<Finding> silent_swap(const GroupView& group, std::uint64_t seq, bool had_agreed);

}  // namespace lockstep::checkers
