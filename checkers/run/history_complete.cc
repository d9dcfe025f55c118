#include "checkers/run/history_complete.h"

#include <fmt/format.h>

#include "harness/model/coverage.h"

namespace lockstep::checkers {

Verdict HistoryComplete::check(const Job& job) const {
  const Run& run = job.run();
  Verdict verdict{.name = std::string(name())};
  verdict.examined["processes"] = run.processes.size();
  const std::vector<Gap>& gaps = job.gaps();
  if (run.live) {
    verdict.reason = "the run goes on";
  } else if (!gaps.empty()) {
    verdict.because(lacking(gaps.front().code, gaps.front().what));
    if (gaps.size() > 1)
      verdict.reason += fmt::format(" (and {} more)", gaps.size() - 1);
  } else {
    verdict.outcome = Outcome::kPass;
  }
  return verdict;
}

}  // namespace lockstep::checkers
