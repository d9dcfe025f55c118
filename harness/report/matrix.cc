#include "harness/report/matrix.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <vector>

#include "harness/report/pieces.h"
#include "harness/report/text.h"

namespace lockstep::report {
namespace {

struct Place {
  std::size_t run{}, passed{}, mutants{}, caught{};
  std::string not_applicable{};

  [[nodiscard]] std::string text() const {
    if (run + mutants == 0)
      return not_applicable.empty() ? "" : "-";
    std::string cases = passed == run ? fmt::format("{}", run) : fmt::format("{}/{}", passed, run);
    if (mutants > 0)
      cases += caught == mutants ? fmt::format(" +{}", mutants)
                                 : fmt::format(" +{}/{}", caught, mutants);
    return cases;
  }
};

struct Matrix {
  std::vector<std::string> scenarios{}, implementations{};  // In order of appearance.
  std::map<std::pair<std::string, std::string>, Place> places{};

  [[nodiscard]] std::string text_at(const std::string& scenario,
                                    const std::string& implementation) const {
    const auto place = places.find({scenario, implementation});
    return place == places.end() ? std::string() : place->second.text();
  }
};

void remember(std::vector<std::string>& names, const std::string& name) {
  if (std::find(names.begin(), names.end(), name) == names.end())
    names.push_back(name);
}

Matrix matrix_of(const Report& report) {
  Matrix matrix;
  for (const CaseReport& result : report.cases) {
    // A mutant counts for the implementation that it is a mutant of.
    const std::string& column =
        result.mutants.empty() ? result.implementation : result.mutants.front().of;
    remember(matrix.scenarios, result.scenario);
    remember(matrix.implementations, column);
    Place& place = matrix.places[{result.scenario, column}];
    for (const MutantResult& mutant : result.mutants) {
      ++place.mutants;
      place.caught += mutant.caught ? 1 : 0;
    }
    if (result.outcome == Outcome::kSkipped)
      place.not_applicable = result.reason;
    else if (result.mutants.empty() || result.implementation == column) {
      ++place.run;
      place.passed += result.outcome == Outcome::kPass ? 1 : 0;
    }
  }
  return matrix;
}

std::string padded(const std::string& text, std::size_t width) {
  return text + std::string(width - std::min(width, text.size()), ' ');
}

// "gradient-equivalence" on two lines, at its last hyphen.
std::pair<std::string, std::string> two_lines(const std::string& name) {
  const std::size_t hyphen = name.rfind('-');
  if (hyphen == std::string::npos)
    return {"", name};
  return {name.substr(0, hyphen), name.substr(hyphen + 1)};
}

// One row for each implementation, one column for each scenario.
std::vector<std::string> grid(const Matrix& matrix) {
  std::size_t first_width = 0;
  for (const std::string& name : matrix.implementations)
    first_width = std::max(first_width, name.size());
  std::vector<std::string> lines{std::string(first_width, ' '), std::string(first_width, ' ')};
  for (const std::string& name : matrix.implementations)
    lines.push_back(padded(name, first_width));
  for (const std::string& scenario : matrix.scenarios) {
    const auto [above, below] = two_lines(scenario);
    std::vector<std::string> column{above, below};
    for (const std::string& implementation : matrix.implementations)
      column.push_back(matrix.text_at(scenario, implementation));
    std::size_t width = 0;
    for (const std::string& text : column)
      width = std::max(width, text.size());
    for (std::size_t i = 0; i < lines.size(); ++i)
      lines[i] += "  " + padded(column[i], width);
  }
  for (std::string& line : lines)
    line.erase(line.find_last_not_of(' ') + 1);
  return lines;
}

// The same where the grid is too wide: "ddp: gradient-equivalence 15 +12, ...".
std::vector<std::string> list(const Matrix& matrix) {
  std::vector<std::string> lines;
  for (const std::string& implementation : matrix.implementations) {
    std::string line;
    for (const std::string& scenario : matrix.scenarios) {
      const std::string text = matrix.text_at(scenario, implementation);
      if (!text.empty() && text != "-")
        line += fmt::format("{} {} {}", line.empty() ? ":" : ",", scenario, text);
    }
    lines.push_back(implementation + line);
  }
  return lines;
}

bool fits(const std::vector<std::string>& lines, std::size_t width) {
  return std::all_of(lines.begin(), lines.end(),
                     [&](const std::string& line) { return line.size() <= width; });
}

}  // namespace

std::string matrix_text(const Report& report, const HumanOptions& options) {
  const Matrix matrix = matrix_of(report);
  if (matrix.scenarios.size() < 2)
    return {};
  const std::size_t room = options.width - 2;
  std::vector<std::string> lines = grid(matrix);
  if (!fits(lines, room))
    lines = list(matrix);
  lines.emplace_back("cases that passed, +mutants that were caught; -: not applicable");
  std::string out;
  for (const std::string& line : lines) {
    for (const std::string& text : wrap(printable(line, options.unicode), room, 4))
      out += "  " + text + "\n";
  }
  for (const auto& [at, place] : matrix.places) {
    if (place.run + place.mutants > 0 || place.not_applicable.empty())
      continue;
    const std::string why = fmt::format("{} x {}: {}", at.first, at.second, place.not_applicable);
    for (const std::string& text : wrap(printable(why, options.unicode), room, 4))
      out += "  " + painted(text, Paint::kDim, options) + "\n";
  }
  return out;
}

}  // namespace lockstep::report
