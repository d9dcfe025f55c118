// What an earlier report knew: a gate that fails only on what is new.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "harness/base/error.h"
#include "harness/verdict/report.h"

namespace lockstep {

/// The text of a line of a source; empty where it cannot be read.
using LineText = std::function<std::string(const SiteRef&)>;

/// As a report of the format lockstep-report/2 (or 1) has it.
struct KnownFinding {
  std::string code{}, op{}, case_id{};
  std::vector<std::string> names{};  ///< They tell findings without a line apart.
  SiteRef site{};                    ///< No file: it has none.
  std::string text{};                ///< Of that line. Empty: the report has no texts.
  std::string headline{};
};

/// Errors: kUsage where it is no such report.
Result<std::vector<KnownFinding>> parse_baseline(std::string_view report_json,
                                                 const std::string& path);

struct BaselineUse {
  std::size_t known{};              ///< Errors that are notes now.
  std::vector<std::string> gone{};  ///< What the baseline has and the report has not.
};

/// Errors of the same code and operation at the same line (by file, function and its text, not its
/// number) become notes, and the report is concluded anew. How a job ends stays: what is about
/// ranks that end, wait or left a loop is no less an error for being known, nor is a mismatch that
/// the program did not get over, and undecided stays undecided. `required`: checks that must
/// decide.
BaselineUse apply_baseline(Report& report, const std::vector<KnownFinding>& known,
                           const LineText& line_text, const std::vector<std::string>& required);

}  // namespace lockstep
