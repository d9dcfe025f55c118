// A run as one page of HTML that needs nothing beside it: what was found with its source lines, and
// for each group what every rank called, by place in the order of the group.
#pragma once

#include <string>
#include <vector>

#include "harness/model/worlds.h"
#include "harness/verdict/report.h"

namespace lockstep::session {

/// `worlds`: those of the run that the report is about; none of a suite. Source files are read
/// where they are there. Of a long history the part around the first divergence is shown, or else
/// its end.
std::string render_page(const Report& report, const std::vector<World>& worlds);

}  // namespace lockstep::session
