#include "harness/model/gloo_teardown.h"

#include <algorithm>
#include <csignal>

#include "harness/model/call_site.h"
#include "harness/model/stack_patterns.h"

namespace lockstep {
namespace {

bool is_complete(const Collective& call) {
  return call.returned_ns && !call.failed && (call.completed_ns || call.completion_unseen);
}

}  // namespace

bool ended_in_gloo_teardown(const Run& run, const ProcessEnd& end) {
  bool terminated = false;
  for (const Raised& raised : run.raised) {
    if (raised.pid != end.pid)
      continue;
    if (raised.text != kTerminated && raised.text != kJoinedItself)
      return false;
    terminated = true;
  }
  if (end.signal != SIGABRT || end.our_signal)
    return false;
  const auto process = std::find_if(run.processes.begin(), run.processes.end(),
                                    [&](const Process& p) { return p.pid == end.pid; });
  const bool was_done =
      process != run.processes.end() && !process->collectives.empty() &&
      std::all_of(process->collectives.begin(), process->collectives.end(), is_complete);
  const std::vector<Frame> frames = abort_of(run, end.pid).frames;
  if (frames.empty())
    return terminated && was_done;
  return any(frames, Sign::kGlooLoop) &&
         (any(frames, Sign::kThreadExit) || (was_done && any(frames, Sign::kThreadJoin)));
}

bool ended_as_asked(const Run& run, const ProcessEnd& end) {
  if (end.signal != SIGABRT || end.sender.empty())
    return !end.sender.empty();
  const StackSample abort = abort_of(run, end.pid);
  const bool asked_before = abort.frames.empty() || end.asked_ns < abort.at_ns;
  return asked_before && ended_in_gloo_teardown(run, end);
}

bool came_to_its_end(const Run& run, const ProcessEnd& end) {
  return !end.our_signal && !ended_as_asked(run, end) &&
         (end.exit_status == 0 || ended_in_gloo_teardown(run, end));
}

}  // namespace lockstep
