// One job on several hosts, where each lockstep recorded the ranks of its own: their runs as one.
// Clocks of hosts are not trusted. What is matched tells how far they are apart: nobody has the
// result of an all_reduce before everybody has called it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "harness/base/error.h"
#include "harness/history/run.h"
#include "harness/history/sender.h"

namespace lockstep::history {

/// Reads a run; or runs of one job, each of another host (or of another lockstep on one), given
/// one by one or as the directory in which they lie. Errors: those of open_run; kUsage (two of them
/// have one rank, each at its time).
Result<Run> open_hosts(const std::vector<std::string>& directories);

/// All in the time of the host of rank 0, as far as that is known (Run::clock_error_ns). Process
/// ids are told apart by the host's number above kPidBits; see words_of_pid.
Result<Run> merge_hosts(std::vector<Run> runs);

constexpr int kPidBits = 22;  ///< Linux gives no process or thread a higher number.

/// "pid 4711"; on another host than that of rank 0 "pid 4711 of host 2".
std::string words_of_pid(std::int32_t pid);
/// "pid 4711 (torchrun)".
std::string words_of(const Sender& sender);
/// As its host has it.
constexpr std::int32_t own_pid(std::int32_t pid) { return pid & ((1 << kPidBits) - 1); }

}  // namespace lockstep::history
