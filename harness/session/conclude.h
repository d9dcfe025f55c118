// What a job comes to: the outcome, the exit status of lockstep, and why it is undecided. A pass
// needs an explanation for each rank that did not end well.
#pragma once

#include <vector>

#include "checkers/judge.h"
#include "harness/model/worlds.h"
#include "harness/verdict/report.h"

namespace lockstep::session {

/// Of a report that has everything else. `judged`: world by world.
void conclude(Report& report, const std::vector<World>& worlds,
              const std::vector<checkers::Judgement>& judged);

}  // namespace lockstep::session
