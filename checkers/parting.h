// Groups with the same members seen as one order of calls: ranks that wait for each other in
// different ones of them parted after the last call that all of them made.
#pragma once

#include <string>

#include "checkers/attribution.h"
#include "checkers/owing.h"

namespace lockstep::checkers {

bool same_members(const GroupView& a, const GroupView& b);

/// Who went another way than the others, or than it always did; nobody where that does not show.
struct Parting {
  Attribution blame{};
  std::string after{};  ///< "all_reduce 0#5", which all made; empty = they parted at their first.
};

/// Of the members of `group`, in it and all others with the same members. Every member must be
/// stuck in the first call that it made after they parted.
Parting parting(const Run& run, const Situation& situation, const GroupView& group);

}  // namespace lockstep::checkers
