#include "harness/report/pieces.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "harness/report/text.h"

namespace lockstep::report {
namespace {

/// How much of its tolerance a measure uses up; infinite where it is beyond all measure.
double use_of(const Measure& measure) {
  if (std::isnan(measure.value))
    return std::numeric_limits<double>::infinity();
  if (measure.tolerance > 0)
    return std::abs(measure.value) / measure.tolerance;
  return measure.value == 0 ? 0 : std::numeric_limits<double>::infinity();
}

}  // namespace

std::string_view word_of(Outcome outcome) {
  switch (outcome) {
    case Outcome::kPass:
      return "PASS";
    case Outcome::kFail:
      return "FAIL";
    case Outcome::kSkipped:
      return "SKIPPED";
    case Outcome::kUndecided:
      break;
  }
  return "UNDECIDED";
}

Paint paint_of(Outcome outcome) {
  switch (outcome) {
    case Outcome::kPass:
      return Paint::kGood;
    case Outcome::kFail:
      return Paint::kBad;
    case Outcome::kSkipped:
      return Paint::kDim;
    case Outcome::kUndecided:
      break;
  }
  return Paint::kDoubt;
}

std::string duration(double wall_s) {
  return wall_s < 99.995 ? fmt::format("[{:6.2f} s]", wall_s) : fmt::format("[{:6.1f} s]", wall_s);
}

std::string measures_text(const std::vector<Measure>& all) {
  std::vector<Measure> measures;
  std::string figures;
  for (const Measure& measure : all) {
    if (measure.rule != "figure")  // A figure is told, not compared.
      measures.push_back(measure);
    else
      figures += fmt::format("{}{}: {}{}", figures.empty() ? "" : "; ", measure.name,
                             number(measure.value), measure.unit.empty() ? "" : " " + measure.unit);
  }
  if (measures.empty())
    return figures;
  const Measure& worst =
      *std::max_element(measures.begin(), measures.end(),
                        [](const Measure& a, const Measure& b) { return use_of(a) < use_of(b); });
  std::string text = fmt::format("{}: {}{}", worst.name, number(worst.value),
                                 worst.unit.empty() ? "" : " " + worst.unit);
  if (worst.tolerance == 0)
    text += worst.rule.empty() || worst.rule == "exact" ? ", must be exact" : "";
  else
    text += fmt::format(", tolerance {}{}", number(worst.tolerance),
                        worst.rule.empty() ? "" : fmt::format(" ({})", worst.rule));
  std::optional<double> power;
  for (const Measure& measure : measures) {
    if (measure.power && (!power || *measure.power < *power))
      power = measure.power;
  }
  if (power)
    text += fmt::format(", power {}", number(*power));
  if (measures.size() > 1)
    text += fmt::format("; worst of {}", count_of(measures.size(), "measure"));
  return figures.empty() ? text : text + "; " + figures;
}

std::vector<PlacedFinding> all_findings(const Report& report) {
  std::vector<PlacedFinding> all;
  for (const Finding& finding : report.findings)
    all.push_back({&finding, nullptr, report.world_size.value_or(0)});
  for (const CaseReport& result : report.cases) {
    for (const Finding& finding : result.findings)
      all.push_back({&finding, &result, result.ranks});
  }
  std::stable_sort(all.begin(), all.end(), [](const PlacedFinding& a, const PlacedFinding& b) {
    return a.finding->severity < b.finding->severity;
  });
  return all;
}

}  // namespace lockstep::report
