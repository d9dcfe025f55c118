// What must agree between the members of one collective, operation by operation. Decides what a
// mismatch is.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "harness/model/group_view.h"
#include "harness/verdict/codes.h"

namespace lockstep {

/// Codes LS201 to LS205 in which two members' calls at one place differ, worst first. Empty: they
/// may be one collective. Fields that are unknown on either side differ from nothing.
std::vector<Code> differences(const Collective& a, const Collective& b);

/// As `differences` sees the two: where one names bytes and the other what they mean, and nothing
/// computes with either, both are of bytes. They may be equal then.
std::pair<Collective, Collective> in_like_terms(const Collective& a, const Collective& b);

/// No code: can these two be the same call?
bool agree(const Collective& a, const Collective& b);

/// Uneven lists may be right pair by pair and wrong as a whole: what is handed in and what is
/// received must add up over all members. True only where all members' calls are given and the sums
/// cannot fit.
bool sums_disagree(const std::vector<const Collective*>& calls, std::int32_t group_size);

/// "all_reduce of 8 float32 (sum)": the call as its rank meant it.
std::string describe(const Collective& call);

/// What one member gets from a completed call, it got from all others: so all of them have issued
/// it.
bool completion_needs_everyone(const Collective& call);

}  // namespace lockstep
