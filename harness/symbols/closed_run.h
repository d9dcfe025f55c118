// The end of a recorded run: its files where they stay, and its code positions resolved while the
// programs are as they were, so that `check` says the same lines later.
#pragma once

#include "harness/base/error.h"
#include "harness/history/run_directory.h"
#include "harness/symbols/resolver.h"

namespace lockstep::symbols {

/// Closes `directory` and reads it back; writes symbols.json. Errors: as RunDirectory::close() and
/// history::open_run().
Result<Run> close_and_open(history::RunDirectory& directory, Resolver& resolver);

}  // namespace lockstep::symbols
