// Whom the calls that stand still in dumps convict.
#pragma once

#include "checkers/hang/recorded_graph.h"

namespace lockstep::checkers {

RankSet common(const RankSet& a, const RankSet& b);
/// Most of the members are there and these are not. Of two nobody is more.
bool is_few(const RecordedWait& wait, const RankSet& ranks);
/// Those whom most members of a group wait for, or two ranks in calls of their own.
RankSet convicted(const RecordedGraph& graph, const RankSet& roots);
/// One rank that waits for nothing, while all others wait. A call too many of somebody else would
/// have left it, and those who run the same program, to go on.
bool is_only_idle(const Run& run, const RecordedGraph& graph, const RankSet& roots);
/// Those who owe a call, and issued others that all ranks else issue after it.
/// `supposed`: also where only the order of their calls tells what their devices are in.
RankSet went_past(const Run& run, const RecordedGraph& graph, bool supposed);
/// The few whom the many wait for in a call of the circle, and who do not wait themselves for
/// such: they did not issue it, or else their devices did not come to it. Nobody where that is
/// not one place.
RankSet unexplained_in(const RecordedGraph& graph, const RankSet& circle);

}  // namespace lockstep::checkers
