#include "harness/model/coverage.h"

#include <fmt/format.h>

#include <algorithm>

#include "harness/history/recorded.h"
#include "harness/model/group_view.h"

namespace lockstep {
namespace {

/// By a signal that lockstep sent it, or somebody of the job (launchers do): it had no time to
/// write that it ends, and nothing else is missing for that.
bool was_ended(const Run& run, const Process& process) {
  return std::any_of(run.ends.begin(), run.ends.end(), [&](const ProcessEnd& end) {
    return end.pid == process.pid && end.at_ns >= process.opened_ns && end.signal &&
           (end.our_signal || end.sender);
  });
}

}  // namespace

std::vector<Gap> gaps_of(const Run& run) {
  std::vector<Gap> gaps;
  const auto incomplete = [&](std::string what) {
    gaps.push_back({Code::kHistoryIncomplete, std::move(what)});
  };
  for (const std::string& sentence : run.missing)
    incomplete(sentence);
  const bool dumps = is_of_dumps(run);
  if (!run.journal_complete && !dumps)
    incomplete("the journal of the run has a gap or no end");
  for (const Rank rank : ranks_of(run)) {
    const bool claimed =
        std::any_of(run.processes.begin(), run.processes.end(),
                    [&](const Process& process) { return process.beside == rank; });
    if (current_process(run, rank) == nullptr)
      incomplete(fmt::format("rank {} {}", rank.value,
                             claimed ? "is in two worlds that formed at one time"
                             : dumps ? "has no dump"
                                     : "has no history"));
  }
  for (const Process& process : run.processes) {
    if (process.beside)  // Nothing is judged by it.
      continue;
    const std::string whose = process.rank ? fmt::format("rank {}", process.rank->value)
                                           : fmt::format("process {}", process.pid);
    if (process.damaged)
      incomplete(fmt::format("part of the history of {} makes no sense and was left out", whose));
    else if (!process.closed && !was_ended(run, process))
      incomplete(fmt::format("the history of {} has no closing record", whose));
    if (process.dropped > 0)
      gaps.push_back({Code::kEventsDropped,
                      fmt::format("{} records of {} were dropped", process.dropped, whose)});
  }
  return gaps;
}

Reason why_open(const Run& run) {
  if (run.live)
    return {.text = "the run goes on"};
  return run.journal_complete ? Reason{} : incomplete("the journal of the run is incomplete");
}

Reason incomplete(std::string_view what) { return lacking(Code::kHistoryIncomplete, what); }

Reason lacking(Code code, std::string_view what) {
  return {.text = fmt::format("{}: {}", text_of(code), what), .lacks = code};
}

}  // namespace lockstep
