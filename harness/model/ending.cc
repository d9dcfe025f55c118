#include "harness/model/ending.h"

#include <algorithm>
#include <csignal>

#include "harness/history/rank_places.h"
#include "harness/model/call_site.h"
#include "harness/model/stack_patterns.h"

namespace lockstep {
namespace {

bool is_complete(const Collective& call) {
  return call.returned_ns && !call.failed && (call.completed_ns || call.completion_unseen);
}

/// A thread of Gloo asked for Python, which ends whatever thread asks once it is finalized, and
/// that passed through a destructor; or it destroyed the group, which waits for its threads. Where
/// that stack was not seen: std::terminate said the one or the other, after everything that the
/// process ever issued was complete. It had raised nothing before.
bool ended_in_gloo_teardown(const Run& run, const ProcessEnd& end, const StackSample& abort) {
  bool terminated = false;
  for (const Raised& raised : run.raised) {
    if (raised.pid != end.pid)
      continue;
    if (raised.text != kTerminated && raised.text != kJoinedItself)
      return false;
    terminated = true;
  }
  const auto process = std::find_if(run.processes.begin(), run.processes.end(),
                                    [&](const Process& p) { return p.pid == end.pid; });
  const bool was_done =
      process != run.processes.end() && !process->collectives.empty() &&
      std::all_of(process->collectives.begin(), process->collectives.end(), is_complete);
  if (abort.frames.empty())
    return terminated && was_done;
  return any(abort.frames, Sign::kGlooLoop) && (any(abort.frames, Sign::kThreadExit) ||
                                                (was_done && any(abort.frames, Sign::kThreadJoin)));
}

}  // namespace

Ending ending_of(const Run& run, const ProcessEnd& end) {
  Ending ending{.by_us = end.our_signal.has_value(), .as_asked = end.sender.has_value()};
  if (end.signal)
    ending.how = Ended::kSignal;
  else if (end.exit_status)
    ending.how = *end.exit_status == 0 ? Ended::kCleanly : Ended::kStatus;
  if (end.signal != SIGABRT)
    return ending;
  const StackSample abort = abort_of(run, end.pid);
  if (!ending.by_us && ended_in_gloo_teardown(run, end, abort))
    ending.how = Ended::kInGlooTeardown;
  ending.as_asked = ending.as_asked && ending.how == Ended::kInGlooTeardown &&
                    (abort.frames.empty() || end.asked_ns < abort.at_ns);
  return ending;
}

bool was_meant(const Run& run, const ProcessEnd& end) {
  return ending_of(run, end).as_asked &&
         std::any_of(run.ends.begin(), run.ends.end(), [&](const ProcessEnd& other) {
           return history::is_command(run, other.pid) && other.exit_status == 0;
         });
}

bool came_to_its_end(const Run& run, Rank rank) {
  return std::any_of(run.ends.begin(), run.ends.end(), [&](const ProcessEnd& end) {
    return end.role == Role::kRank && end.rank == rank && ending_of(run, end).of_the_program();
  });
}

}  // namespace lockstep
