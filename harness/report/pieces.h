// What the text forms of a report share: status words, durations, measures, the order of findings.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "harness/report/finding_text.h"
#include "harness/verdict/report.h"

namespace lockstep::report {

inline constexpr std::size_t kWordWidth = 10;     // status words end here
inline constexpr std::size_t kDetailIndent = 12;  // what explains a status word starts here

/// "PASS", "FAIL", "UNDECIDED", "SKIPPED".
std::string_view word_of(Outcome outcome);
Paint paint_of(Outcome outcome);

/// "[  0.41 s]", always ten columns up to 27 hours.
std::string duration(double wall_s);

/// The measure closest to its tolerance, or furthest beyond, and the smallest power.
std::string measures_text(const std::vector<Measure>& measures);

struct PlacedFinding {
  const Finding* finding{};
  const CaseReport* result{};  ///< Null outside of a suite.
  std::int32_t world_size{};
};

/// Errors, then warnings, then notes; within each in the order they were found.
std::vector<PlacedFinding> all_findings(const Report& report);

}  // namespace lockstep::report
