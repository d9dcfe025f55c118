#include "checkers/run/history_complete.h"

#include <fmt/format.h>

#include <algorithm>

#include "harness/model/coverage.h"
#include "harness/model/group_view.h"

namespace lockstep::checkers {
namespace {

/// By a signal that lockstep sent it, or somebody of the job (launchers do): it had no time to
/// write that it ends, and nothing else is missing for that.
bool was_ended(const Run& run, const Process& process) {
  return std::any_of(run.ends.begin(), run.ends.end(), [&](const ProcessEnd& end) {
    return end.pid == process.pid && end.at_ns >= process.opened_ns && end.signal &&
           (end.our_signal || !end.sender.empty());
  });
}

std::vector<std::string> what_is_missing(const Run& run) {
  std::vector<std::string> missing;
  for (const std::string& sentence : run.missing)
    missing.push_back(incomplete(sentence));
  if (!run.journal_complete)
    missing.emplace_back(incomplete("the journal of the run has a gap or no end"));
  for (const Rank rank : ranks_of(run)) {
    const bool claimed =
        std::any_of(run.processes.begin(), run.processes.end(),
                    [&](const Process& process) { return process.beside == rank; });
    if (current_process(run, rank) == nullptr)
      missing.push_back(incomplete(
          fmt::format("rank {} {}", rank.value,
                      claimed ? "is in two worlds that formed at one time" : "has no history")));
  }
  for (const Process& process : run.processes) {
    if (process.beside)  // Nothing is judged by it.
      continue;
    const std::string whose = process.rank ? fmt::format("rank {}", process.rank->value)
                                           : fmt::format("process {}", process.pid);
    if (process.damaged)
      missing.push_back(incomplete(
          fmt::format("part of the history of {} makes no sense and was left out", whose)));
    else if (!process.closed && !was_ended(run, process))
      missing.push_back(incomplete(fmt::format("the history of {} has no closing record", whose)));
    if (process.dropped > 0)
      missing.push_back(lacking(Code::kEventsDropped, fmt::format("{} records of {} were dropped",
                                                                  process.dropped, whose)));
  }
  return missing;
}

}  // namespace

Verdict HistoryComplete::check(const Job& job) const {
  const Run& run = job.run();
  Verdict verdict{.name = std::string(name())};
  verdict.examined["processes"] = run.processes.size();
  const std::vector<std::string> missing = what_is_missing(run);
  if (run.live) {
    verdict.reason = "the run goes on";
  } else if (!missing.empty()) {
    verdict.reason = missing.front();
    if (missing.size() > 1)
      verdict.reason += fmt::format(" (and {} more)", missing.size() - 1);
  } else {
    verdict.outcome = Outcome::kPass;
  }
  return verdict;
}

}  // namespace lockstep::checkers
