#include "checkers/gloo_teardown.h"

#include <algorithm>
#include <csignal>

namespace lockstep::checkers {

bool ended_in_gloo_teardown(const Run& run, const ProcessEnd& end) {
  bool terminated = false;
  for (const Raised& raised : run.raised) {
    if (raised.pid != end.pid)
      continue;
    if (raised.text != kTerminated)
      return false;
    terminated = end.signal == SIGABRT && !end.our_signal;
  }
  const auto process = std::find_if(run.processes.begin(), run.processes.end(),
                                    [&](const Process& p) { return p.pid == end.pid; });
  if (!terminated || process == run.processes.end() || process->collectives.empty())
    return false;
  return std::all_of(
      process->collectives.begin(), process->collectives.end(), [](const Collective& call) {
        return call.returned_ns && !call.failed && (call.completed_ns || call.completion_unseen);
      });
}

}  // namespace lockstep::checkers
