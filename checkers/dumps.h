// Judges what dumps of Flight Recorders can tell: the order of calls, and who waits for whom.
#pragma once

#include "checkers/judge.h"

namespace lockstep::checkers {

Judgement judge_dumps(const Run& run);

}  // namespace lockstep::checkers
