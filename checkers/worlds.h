// All worlds of a run judged one by one, and what their launcher made of it: a failure that it
// handled is a note.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "checkers/judge.h"
#include "harness/model/worlds.h"

namespace lockstep::checkers {

/// "phase 1 of 2", or "job 1 of 2" where another one was there with it; empty for the only one.
std::string name_of(const std::vector<World>& worlds, std::size_t number);

/// By world.
std::vector<Judgement> judge_worlds(const std::vector<World>& worlds, const Checkers& checkers);

/// As one: each check by the worst that it said of a world, findings by time, with their world.
Judgement together(const std::vector<World>& worlds, std::vector<Judgement> judgements);

/// As certain_deadlock() (deadlock.h). Of several worlds that are there at one time it takes all of
/// those that live: who ends the job for one would end the others.
std::optional<std::string> certain_deadlock_of_all(const Run& live);

}  // namespace lockstep::checkers
