// Which processes of this host are the ranks of a job that somebody else started: by what their
// environment says, as launchers set it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "harness/base/error.h"
#include "harness/base/rank_set.h"
#include "harness/os/proc.h"

namespace lockstep::diagnose {

/// What the user asked for. All empty: the only job that runs here.
struct Selection {
  std::vector<std::int32_t> pids{};  ///< Of a rank (its whole job), or of what started ranks.
  std::string name{};                ///< Ranks whose command line contains it.
  std::string job{};                 ///< Id of Slurm or of torchrun, or MASTER_ADDR:MASTER_PORT.
};

struct RankProcess {
  os::ProcessId id{};
  Rank rank{};
  std::int32_t world_size{};  ///< 0: not told.
  std::int32_t local_size{};  ///< How many of them are on this host; 0: not told.
  std::string meets_at{};     ///< MASTER_ADDR:MASTER_PORT.
  std::string job{};          ///< Id of Slurm or of torchrun; empty: none.
  std::string command{};
  [[nodiscard]] std::string name_of_job() const { return job.empty() ? meets_at : job; }
};

/// By rank; all of one job. Errors: kUsage (nothing fits, or several jobs do: which),
/// kEnvironment (what was asked for is not ours to read).
Result<std::vector<RankProcess>> find_ranks(const Selection& selection);

}  // namespace lockstep::diagnose
