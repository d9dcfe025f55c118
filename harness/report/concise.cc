#include <fmt/format.h>

#include <algorithm>

#include "harness/report/finding_text.h"
#include "harness/report/human.h"
#include "harness/report/pieces.h"
#include "harness/report/text.h"

namespace lockstep {

using namespace report;

std::string render_concise(const Report& report, const HumanOptions& options) {
  std::string out;
  const auto add = [&](std::string_view line) {
    std::string text = printable(line, options.unicode);
    std::replace(text.begin(), text.end(), '\n', ' ');
    out += text + "\n";
  };
  for (const PlacedFinding& placed : all_findings(report)) {
    const Finding& finding = *placed.finding;
    std::string line = fmt::format("{} {}", finding.code, name_of(finding.severity));
    for (const std::string& part : {placed.result == nullptr ? std::string() : placed.result->id,
                                    operation_text(finding, false), finding.headline}) {
      if (!part.empty())
        line += "  " + part;
    }
    add(line);
  }
  for (const CaseReport& result : report.cases) {
    if (result.outcome == Outcome::kUndecided)
      add(fmt::format("undecided  {}  {}", result.id, result.reason));
  }
  for (const Verdict& check : report.checks) {
    if (check.outcome == Outcome::kUndecided)
      add(fmt::format("undecided  {}  {}", check.name, check.reason));
  }
  if (!report.reason.empty())
    add(fmt::format("{}  {}", name_of(report.outcome), report.reason));
  return out;
}

}  // namespace lockstep
