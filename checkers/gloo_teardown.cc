#include "checkers/gloo_teardown.h"

#include <algorithm>
#include <csignal>

namespace lockstep::checkers {

bool ended_in_gloo_teardown(const Run& run, const ProcessEnd& end) {
  const bool terminated =
      end.signal == SIGABRT && !end.our_signal &&
      std::any_of(run.raised.begin(), run.raised.end(), [&](const Raised& raised) {
        return raised.pid == end.pid && raised.text == kTerminated;
      });
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
