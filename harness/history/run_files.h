// Moving and removing the live files of a run: by its own process, or by a later one.
#pragma once

#include <string>
#include <vector>

#include "harness/base/error.h"

namespace lockstep::history {

constexpr const char* kLivePrefix = "lockstep-";  ///< Of a run's directory in tmpfs.
constexpr const char* kLiveLink = "live";  ///< RUN/history/live: link to it, while there is one.
constexpr const char* kNow = "now";        ///< RUN/history/now: what others read of it (heads.h).
constexpr const char* kRunLink = "run";    ///< In it: link to RUN/history.

/// What processes of the job leave of themselves: the history of a tap, and by their shim a line
/// why there is none, or of a choice of devices that came too late.
constexpr const char* kHistory = ".lsh";
constexpr const char* kWatched = ".lsw";  ///< Beside a history, of a rank that is watched.
constexpr const char* kUnseen = ".unseen";
constexpr const char* kLateDevices = ".late";
bool is_of_a_process(const std::string& file_name);

/// Moves every file of a process of `from` into `to`; across file systems as a copy without its
/// zero pages. Errors: kIo; the files that were not moved are left where they are.
Result<void> move_files(const std::string& from, const std::string& to);

/// Removes what a killed lockstep left in tmpfs for this run and its cases: only a directory of the
/// user's with our prefix.
void remove_live_of(const std::string& run_directory);

/// The live directory of a run whose process was killed, and where its files belong.
struct DeadLive {
  std::string path{}, history{};
};

/// Those of this user. Whoever records holds his locked.
std::vector<DeadLive> dead_live_directories();

/// Moves the files to where they belong, if that is still there, and removes the directory.
/// Errors: kIo.
Result<void> take_back(const DeadLive& live);

}  // namespace lockstep::history
