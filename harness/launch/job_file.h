// RUN/job: which job ran here and what of it may live on. Whoever of lockstep lives holds it
// locked, so a later one can prove that all of them are dead, in whatever pid namespace they were.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "harness/base/error.h"
#include "harness/base/unique_fd.h"
#include "harness/os/proc.h"

namespace lockstep::launch {

/// In the environment of every process of a job: RUN.
inline constexpr const char* kRunMarker = "LOCKSTEP_RUN";

/// Writes and locks it; open while the returned descriptor is. Errors: kIo.
Result<UniqueFd> create_job_file(const std::string& run_directory, const std::string& job_id);

/// Locks one that exists, for the guard that takes over. An empty descriptor where it cannot.
UniqueFd hold_job_file(const std::string& run_directory);

/// Notes a process that may live on.
Result<void> note_survivor(const UniqueFd& job_file, const os::ProcessId& process);

struct JobFile {
  std::string id{};
  std::vector<os::ProcessId> survivors{};
  bool held{};  ///< One of that lockstep lives, or nobody can tell.
};

/// None: there is no such file that can be read.
std::optional<JobFile> read_job_file(const std::string& run_directory);

}  // namespace lockstep::launch
