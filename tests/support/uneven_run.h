// A suite's run in which ranks have different numbers of batches and nobody shadows: typed, as in
// typed_run.h.
#pragma once

#include <cstdint>
#include <vector>

#include "tests/support/typed_run.h"

namespace lockstep::testing {

/// Two collectives a batch, asked for one batch after the other; the ranks with the fewest batches
/// are told that there are no more, and the others wait in the first call of their next one. By
/// rank.
Run uneven_run(const std::vector<std::int64_t>& batches);

}  // namespace lockstep::testing
