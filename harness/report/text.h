// Text as a report may print it: harmless to a terminal and to an XML parser, wrapped, counted,
// capped.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "harness/base/rank_set.h"

namespace lockstep::report {

/// Valid UTF-8 that moves no cursor: bytes that are no UTF-8 become U+FFFD, control characters
/// their escape ("\x1b"), tabs a space. Line feeds stay. Names, paths and exception texts come from
/// the program under test.
std::string clean(std::string_view text);

/// `clean`, and without `unicode` also nothing outside ASCII: the nearest character, else '?'.
std::string printable(std::string_view text, bool unicode);

/// Columns of one line of valid UTF-8: code points. Double-width and combining characters count as
/// one.
std::size_t columns(std::string_view line);

/// The first columns of a line, with a sign at the end if some are cut.
std::string truncated(std::string_view line, std::size_t width, bool unicode);

/// Lines of at most `width` columns, broken at spaces and line feeds; continuation lines are
/// indented by `hanging`. A line that fits keeps its inner spacing, so that columns stay aligned. A
/// single long word is not broken.
std::vector<std::string> wrap(std::string_view text, std::size_t width, std::size_t hanging = 0);

/// "1 rank", "7 ranks". The noun is in the singular; "process" and "match" take "es".
std::string count_of(std::uint64_t count, std::string_view noun);

/// "rank 3", "ranks 0-2,4-7", "all 8 ranks"; "none" if empty. At most ten ranges: "ranks 0,2,4 and
/// 504 more".
std::string describe(const RankSet& ranks, std::int32_t world_size = 0);

/// Three significant digits: "2.22e-16", "0.333", "nan".
std::string number(double value);

/// A word of a shell command, quoted only if it must be.
std::string shell_word(std::string_view word);

}  // namespace lockstep::report
