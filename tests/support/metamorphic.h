// The law that deleting any suffix, record or file of a history never turns pass into fail and
// never moves the blame to another rank. For runs typed in memory and for saved ones.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "harness/history/run.h"

namespace lockstep::testing {

struct LawOptions {
  std::size_t single_max{
      400};                 ///< Deletions of one record; spread evenly over the run if it has more.
  std::size_t subsets{60};  ///< Random subsets.
  std::uint64_t seed{1};
};

/// One sentence per violation: what was deleted, and what the judgement became.
std::vector<std::string> law_violations(const Run& run, const LawOptions& options = {});

}  // namespace lockstep::testing
