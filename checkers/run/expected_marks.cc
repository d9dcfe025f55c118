#include "checkers/run/expected_marks.h"

#include <fmt/format.h>

#include <algorithm>

namespace lockstep::checkers {

Verdict ExpectedMarks::check(const Job& job) const {
  const Run& run = job.run();
  Verdict verdict{.name = std::string(name())};
  if (run.plan.expected_marks.empty())
    return verdict.skip("the plan expects no mark");
  for (const std::string& expected : run.plan.expected_marks) {
    const bool seen = std::any_of(run.marks.begin(), run.marks.end(),
                                  [&](const Mark& mark) { return mark.name == expected; });
    if (!seen) {
      verdict.reason = fmt::format("it is not on record that this happened: {}", expected);
      return verdict;
    }
    ++verdict.examined["marks"];
  }
  verdict.outcome = Outcome::kPass;
  return verdict;
}

}  // namespace lockstep::checkers
