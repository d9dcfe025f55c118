// The worlds of a run: each set of ranks that belong together, as a Run of its own. One command may
// make several of them: the phases of a trainer, the attempts of an elastic launcher, two launchers
// one after the other or at one time. What is concluded is concluded of one world.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "harness/history/run.h"

namespace lockstep {

struct World {
  Run run{};                  ///< What of the whole run is about it; its ranks are settled.
  RankSet ranks{};            ///< Who says that it is of it.
  std::uint64_t from_ns{};    ///< When its first process made its group, or was found.
  std::uint64_t until_ns{};   ///< When its last process ended; UINT64_MAX: not known.
  std::int32_t started_by{};  ///< Whose children its processes are; 0: not of one, or not known.
  std::int32_t attempt{};     ///< As an elastic launcher counts them, from 0.
  std::optional<std::int32_t> task{};  ///< Of mpirun or srun, where all of it is of one.
  std::int32_t tasks{};
  [[nodiscard]] bool lived_with(const World& other) const {
    return from_ns < other.until_ns && other.from_ns < until_ns;
  }
};

/// In order of time, at least one. What is of no world (leftovers, notes, what could not be read)
/// is in the last one; who started them is in all. Processes of two worlds that formed at one time
/// and cannot be told apart are in one, where nobody has a rank that both have (rank_places.h).
std::vector<World> worlds_of(Run run);

/// Of a job that runs: its worlds, where two of them were ever there at one time; else none, and
/// the run itself is about the one that there is (rank_places.h).
std::vector<World> worlds_at_one_time(const Run& run);

}  // namespace lockstep
