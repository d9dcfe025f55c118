// A report as text for people: what `suite` and `check` print and report.txt holds.
//
// Everything is a pure function of the report and the options. render_human() is header + cases +
// end, so what a suite prints while it runs (live.h) and what is saved are the same bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "harness/verdict/report.h"

namespace lockstep {

struct HumanOptions {
  std::size_t width{100};  ///< Columns. A longer single word, a command and the summary go beyond.
  bool color{false};       ///< Color is added to words, never instead of one.
  bool unicode{true};      ///< Else ASCII only.
  std::string
      directory{};  ///< Where the run is, as the user would type it; empty: nothing was saved.
  std::string program{"lockstep"};  ///< As the user called it, for the commands that are suggested.
  bool rewrite{};                   ///< The output is a terminal that can move its cursor (live.h).
};

enum class ColorChoice : std::uint8_t { kAuto, kAlways, kNever };

/// What the environment says about the place that output goes to.
struct Surroundings {
  bool terminal{};        ///< The output is a terminal.
  std::size_t columns{};  ///< Of the terminal; 0 = not known.
  std::string_view no_color{}, term{}, lc_all{}, lc_ctype{},
      lang{};  ///< Variables of the environment.
};

/// 100 columns off a terminal, at most 100 on one. `kAlways` beats NO_COLOR, which beats `kAuto`.
HumanOptions human_options(const Surroundings& surroundings, ColorChoice color);

std::string render_human(const Report& report, const HumanOptions& options);

/// The first two lines: version and what runs; where it is written. Of a suite they need nothing
/// but the version of lockstep, because they are printed before anything has started.
std::string human_header(const Report& report, std::size_t case_count, const HumanOptions& options);

/// Outcome, duration, counter (from 1) and id of a case, then what explains them.
std::string human_case(const CaseReport& result, std::size_t index, std::size_t case_count,
                       const HumanOptions& options);

/// All that follows the cases: checks, findings, what is undecided, next commands, and the summary
/// as last line.
std::string human_end(const Report& report, const HumanOptions& options);

/// The last line alone, for the formats that have none.
std::string human_summary(const Report& report, const HumanOptions& options);

/// One line per finding and per undecided case, for logs and pull requests. Empty where there is
/// neither.
std::string render_concise(const Report& report, const HumanOptions& options);

}  // namespace lockstep
