// What a rank is told by its environment: the variables that torch.distributed's env:// rendezvous
// reads, as torchrun would set them on one host; and what a process was told when it started.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "harness/base/rank_set.h"
#include "harness/os/proc.h"

namespace lockstep::launch {

/// RANK, LOCAL_RANK, WORLD_SIZE, LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT.
std::map<std::string, std::string> rank_environment(std::int32_t rank, std::int32_t world_size,
                                                    std::uint16_t port);

/// What its environment at exec, and who started it, say of a process; each is left out where that
/// says nothing.
struct Told {
  std::int32_t parent{};
  std::string parent_name{};
  std::string command{};
  std::int32_t world_size{};
  std::string meets_at{};                 ///< MASTER_ADDR:MASTER_PORT.
  std::optional<std::int32_t> attempt{};  ///< TORCHELASTIC_RESTART_COUNT.
  std::optional<std::int32_t> task{};     ///< As Open MPI, MPICH and Slurm number what they start,
  std::int32_t tasks{};                   ///< and how many of those there are.
};
Told told_of(std::int32_t pid);

/// The value of a variable at exec, where it is a number.
std::optional<std::int32_t> told_number(std::int32_t pid, std::string_view name);
/// The rank that a process is, as far as its environment tells: the first of its family that is
/// told so. What it starts inherits the variable.
std::optional<Rank> told_rank(const os::ProcessStat& process);

}  // namespace lockstep::launch
