// Starts a program by fork and exec (Boost.Process v2 underneath): the one way a fresh process of
// ours begins.
#pragma once

#include <csignal>
#include <map>
#include <string>
#include <vector>

#include "harness/base/error.h"
#include "harness/os/job.h"

namespace lockstep::launch {

/// What a process inherits of signals besides those that are ignored and that we never touch.
struct SignalsAtStart {
  sigset_t blocked{};
  bool child_ignored{};  ///< SIGCHLD: its children would vanish unreaped.
};

struct SpawnOptions {
  std::vector<std::string> command{};  ///< Program and arguments; the program is looked up in PATH.
  std::map<std::string, std::string> environment{};  ///< Added to ours.
  int stdin_fd{-1};                                  ///< -1: nothing to read.
  int stdout_fd{-1}, stderr_fd{-1};                  ///< -1: ours.
  int control_fd{
      -1};  ///< Appears as descriptor 3 (protocol::kWarmControlFd); every other one is closed.
  bool own_group{
      true};  ///< It leads its own process group, so that keys of a terminal do not reach it.
  /// Everything that we were given is passed on as it is, and the process stays in our group: for a
  /// command that is not to notice that it was started by us.
  bool as_we_are{};
  SignalsAtStart signals{};  ///< None blocked if not said otherwise.
};

/// The child dies with this process (it must be called from the main thread, which the parent-death
/// signal follows). Errors: kEnvironment, the program cannot be found or executed.
Result<os::ProcessHandle> spawn(const SpawnOptions& options);

}  // namespace lockstep::launch
