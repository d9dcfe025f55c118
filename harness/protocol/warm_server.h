// The warm parent's side of starting ranks by fork. A warm parent has loaded its libraries once,
// has one thread, and forks a rank through an intermediate that exits, so that the rank becomes a
// child of the supervisor. No torch here: the rank host program links this and brings its own
// loading.
//
//   supervisor -> warm parent   {"id": 1, "supervisor": PID, "environment": {"K": "V"}} + 3
//   descriptors
//                               (conversation, stdout, stderr)
//   warm parent -> supervisor   {"warm": PID} once, when ready; then
//                               {"id": 1, "pid": PID} or {"id": 1, "error": "..."}
#pragma once

#include <functional>

#include "harness/base/error.h"
#include "harness/base/unique_fd.h"
#include "harness/protocol/fd_channel.h"

namespace lockstep::protocol {

/// Where a program started as a warm parent finds its control socket.
inline constexpr int kWarmControlFd = 3;

/// What a freshly forked rank has: its conversation; stdout, stderr and the environment are already
/// its own.
struct RankStart {
  UniqueFd conversation{};
};

/// Serves fork requests until the control socket closes. To be called from main, before any thread
/// exists.
///
/// before_fork_check: anything the program wants to be true before each fork (exactly one thread is
/// always
///   checked); an error becomes the answer and nothing is forked.
/// run_rank: the rank's main, called in the forked rank when its parent is the supervisor, its
/// parent-death
///   signal is set, it leads its own process group, no signal is blocked and SIGPIPE is at its
///   default. What it returns is the rank's exit status, through std::exit.
///
/// Returns the warm parent's own exit status: 0 when the supervisor closed the socket.
int serve_warm(int control_fd, const std::function<Result<void>()>& before_fork_check,
               const std::function<int(RankStart)>& run_rank);

}  // namespace lockstep::protocol
