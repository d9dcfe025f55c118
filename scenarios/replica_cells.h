// Cells of implementations that evaluate replicas of a model within one process (world size 1, the
// option replicas=N), and how many rows they are given.
#pragma once

#include <cstdint>
#include <vector>

#include "scenarios/scenario.h"

namespace lockstep {

/// Of gradient-equivalence.
std::vector<Case> replica_gradient_cells();
/// Of buffer-broadcast.
std::vector<Case> replica_buffer_cells();

/// The option replicas; 0 for implementations without.
std::int64_t replicas_of(const Case& cell);

/// Rows of the one process: as many for every replica, or rows=uneven: a smaller last part, or
/// rows=few: fewer rows than replicas; one_more: chunks of two leave replicas without any.
std::int64_t replica_rows(const Case& cell);

}  // namespace lockstep
