// Which cells of a scenario are asked of a subject: those of the implementation of its kind, as far
// as it declares what they ask for.
#pragma once

#include <vector>

#include "scenarios/scenario.h"
#include "scenarios/subject.h"

namespace lockstep {

/// The cells of `kind` in `all`, made the subject's: what it lacks is not asked, with the reason.
std::vector<Case> subject_cells(const std::vector<Case>& all, const std::string& implementation,
                                const Subject& subject);

/// One of these, of a scenario whose cells are not enough. It is gated as the others are.
Case subject_cell(Case cell, const Subject& subject);

/// A cell that asks for more than the subject declares. It is run all the same: what is found does
/// not count against it, and is told with the reason.
Case tried_cell(Case cell, const Subject& subject, const std::string& why);

}  // namespace lockstep
