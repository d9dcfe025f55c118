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

}  // namespace

std::string matrix_text(const Report& report, const HumanOptions& options) {
  const Matrix matrix = matrix_of(report);
  if (matrix.scenarios.size() < 2)
    return {};
  const auto text_at = [&](const std::string& scenario, const std::string& implementation) {
    const auto place = matrix.places.find({scenario, implementation});
    return place == matrix.places.end() ? std::string() : place->second.text();
  };
  std::size_t first_width = 0;
  for (const std::string& scenario : matrix.scenarios)
    first_width = std::max(first_width, scenario.size());
  const auto line = [&](const std::string& first, const auto& text_of) {
    std::string out = "  " + padded(first, first_width);
    for (const std::string& implementation : matrix.implementations) {
      std::size_t width = implementation.size();
      for (const std::string& scenario : matrix.scenarios)
        width = std::max(width, text_at(scenario, implementation).size());
      out += "  " + padded(text_of(implementation), width);
    }
    out.erase(out.find_last_not_of(' ') + 1);
    return printable(out, options.unicode) + "\n";
  };
  std::string out = line("cases +mutants", [](const std::string& name) { return name; });
  for (const std::string& scenario : matrix.scenarios)
    out += line(scenario, [&](const std::string& name) { return text_at(scenario, name); });
  for (const auto& [at, place] : matrix.places) {
    if (place.run + place.mutants > 0 || place.not_applicable.empty())
      continue;
    const std::string why = fmt::format("- {} x {}: {}", at.first, at.second, place.not_applicable);
    for (const std::string& text : wrap(printable(why, options.unicode), options.width - 2, 4))
      out += "  " + painted(text, Paint::kDim, options) + "\n";
  }
  return out;
}

}  // namespace lockstep::report
