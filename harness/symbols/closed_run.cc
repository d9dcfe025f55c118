#include "harness/symbols/closed_run.h"

#include <vector>

namespace lockstep::symbols {

Result<Run> close_and_open(history::RunDirectory& directory, Resolver& resolver) {
  if (auto closed = directory.close(); !closed)
    return closed.error();
  Result<Run> run = history::open_run(directory.path());
  if (!run)
    return run;
  resolver.resolve(*run);
  std::vector<Frame> resolved;
  for (const Frame* frame : history::frames_of(*run))
    resolved.push_back(*frame);
  if (auto written = history::write_symbols(directory.path(), resolved); !written)
    return written.error();
  return run;
}

}  // namespace lockstep::symbols
