// Ranks that no history tells of so far: those that stand in init_process_group, by the rank and
// the size of the world that this function was called with, or has read in the environment.
#pragma once

#include <cstdint>
#include <vector>

#include "harness/base/rank_set.h"
#include "harness/os/proc.h"

namespace lockstep::launch {

struct Joining {
  os::ProcessId id{};
  Rank rank{};
  std::int32_t world_size{};
};

/// Of these processes. Where one rank of a world is missing, and the parent of the others has one
/// more child that has loaded LibTorch and was told no rank, that is the rank; or else had one,
/// that is among those that `failed`. Reads Python frames from outside.
std::vector<Joining> who_joins(const std::vector<os::ProcessStat>& family,
                               const std::vector<os::ProcessStat>& failed);

}  // namespace lockstep::launch
