// Who is where, who is not where the others are, and whether that shows whom the job waits for.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "harness/diagnose/standing.h"
#include "harness/verdict/verdict.h"

namespace lockstep::diagnose {

struct Diagnosis {
  std::vector<Standing> ranks{};
  /// kFail: with a finding. kPass: nobody has waited for long. kUndecided: some have, and for whom
  /// does not show: `reason`.
  Outcome outcome{Outcome::kUndecided};
  std::string reason{};
  std::optional<Finding> finding{};
};

/// Who has waited for less is not judged: a slow step is no hang.
inline constexpr std::uint64_t kHangNs = 10'000'000'000;

Diagnosis diagnosis_of(std::vector<Standing> ranks);

}  // namespace lockstep::diagnose
