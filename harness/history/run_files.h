// Moving and removing the live files of a run. Internal to run_directory.
#pragma once

#include <string>

#include "harness/base/error.h"

namespace lockstep::history {

constexpr const char* kLivePrefix = "lockstep-";  ///< Of a run's directory in tmpfs.
constexpr const char* kLiveLink = "live";  ///< RUN/history/live: link to it, while there is one.

/// Moves every .lsh and .unseen file of `from` into `to`; across file systems as a copy without its
/// zero pages. Errors: kIo; the files that were not moved are left where they are.
Result<void> move_files(const std::string& from, const std::string& to);

/// Removes what a killed lockstep left in tmpfs for this run and its cases: only a directory of the
/// user's with our prefix.
void remove_live_of(const std::string& run_directory);

}  // namespace lockstep::history
