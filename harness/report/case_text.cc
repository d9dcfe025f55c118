// The lines of one case of a suite.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <vector>

#include "harness/report/finding_text.h"
#include "harness/report/human.h"
#include "harness/report/pieces.h"
#include "harness/report/text.h"

namespace lockstep {
namespace {

using namespace report;

constexpr std::size_t kHeadlinesPerCaseMax = 3;

/// "sum_for_mean LS506", "skip_bucket LS208 by rank 1".
std::string caught_mutant(const MutantResult& mutant) {
  const std::string by = mutant.culprits.empty() ? "" : " by " + describe(mutant.culprits);
  return fmt::format("{} {}{}", mutant.name, mutant.expected, by);
}

/// Mutants that were caught, on one line; of the others, one line each.
std::vector<std::string> mutants_text(const std::vector<MutantResult>& mutants) {
  std::vector<std::string> caught, lines;
  for (const MutantResult& mutant : mutants) {
    if (mutant.caught)
      caught.push_back(caught_mutant(mutant));
  }
  if (!caught.empty())
    lines.push_back(fmt::format("caught: {}", fmt::join(caught, ", ")));
  for (const MutantResult& mutant : mutants) {
    if (!mutant.caught)
      lines.push_back("mutant " + missed_mutant(mutant));
  }
  return lines;
}

std::vector<std::string> case_details(const CaseReport& result) {
  std::vector<std::string> lines;
  const std::size_t shown = std::min(result.findings.size(), kHeadlinesPerCaseMax);
  for (std::size_t i = 0; i < shown; ++i)
    lines.push_back(fmt::format("{}: {}", result.findings[i].code, result.findings[i].headline));
  if (shown < result.findings.size())
    lines.push_back(
        fmt::format("and {}", count_of(result.findings.size() - shown, "more finding")));
  const std::vector<std::string> mutants = mutants_text(result.mutants);
  if (!result.reason.empty() && !said_by(result.reason, mutants))
    lines.push_back(result.reason);
  if (std::string measures = measures_text(result.measures); !measures.empty())
    lines.push_back(std::move(measures));
  lines.insert(lines.end(), mutants.begin(), mutants.end());
  return lines;
}

}  // namespace

std::string human_case(const CaseReport& result, std::size_t index, std::size_t case_count,
                       const HumanOptions& options) {
  const std::size_t digits = fmt::formatted_size("{}", case_count);
  const std::string word(word_of(result.outcome));
  std::string out =
      std::string(kWordWidth - word.size(), ' ') + painted(word, paint_of(result.outcome), options);
  out += fmt::format("  {} ({:>{}}/{}) {}\n", duration(result.wall_s), index, digits, case_count,
                     printable(result.id, options.unicode));
  const bool quiet = result.outcome == Outcome::kPass || result.outcome == Outcome::kSkipped;
  for (const std::string& detail : case_details(result)) {
    const std::size_t room = options.width - std::min(options.width, kDetailIndent);
    for (const std::string& line : wrap(printable(detail, options.unicode), room, 2))
      out += std::string(kDetailIndent, ' ') +
             painted(line, quiet ? Paint::kDim : Paint::kPlain, options) + "\n";
  }
  return out;
}

}  // namespace lockstep
