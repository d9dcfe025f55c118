// The exit statuses of lockstep, once: everything that prints or returns one takes it from here.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace lockstep {

enum class ExitCode : std::int32_t {
  kNothingFound = 0,
  kFinding = 1,
  kUndecided = 2,
  kNoRank = 3,
  kNotApplicable = 77,
  kUsage = 125,
  kNotExecutable = 126,
  kNotFound = 127,
  kInterrupted = 130,
  kOurBug = 134,
};

struct ExitMeaning {
  ExitCode code{};
  std::string_view meaning{};
};

constexpr std::int32_t status_of(ExitCode code) { return static_cast<std::int32_t>(code); }

/// In ascending order. 125 to 127 follow timeout(1).
inline constexpr std::array<ExitMeaning, 10> kExitMeanings{{
    {ExitCode::kNothingFound, "nothing found"},
    {ExitCode::kFinding, "a finding (a rank that is killed, raises or exits non-zero is LS101)"},
    {ExitCode::kUndecided,
     "a required check could not decide, or a failure that nothing seen explains"},
    {ExitCode::kNoRank, "the command failed and no process of it ever became a rank"},
    {ExitCode::kNotApplicable, "nothing applicable"},
    {ExitCode::kUsage, "usage or environment; no report is written"},
    {ExitCode::kNotExecutable, "the command is not executable"},
    {ExitCode::kNotFound, "the command was not found"},
    {ExitCode::kInterrupted, "interrupted, and no finding until then"},
    {ExitCode::kOurBug, "a bug of lockstep itself"},
}};

}  // namespace lockstep
