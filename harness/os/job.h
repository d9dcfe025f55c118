// Processes that are ours, and the only place that sends signals. A process is a pid, its start
// time and a pidfd: the pid alone may by now be somebody else. Nothing we did not start is ever
// signalled.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "harness/base/error.h"
#include "harness/base/unique_fd.h"
#include "harness/os/proc.h"

namespace lockstep::os {

class ProcessHandle {
 public:
  ProcessHandle() = default;

  /// Opens the process that has this pid now. Errors: kEnvironment, no such process.
  static Result<ProcessHandle> open(std::int32_t pid);
  /// Opens it only if it is still the one that is meant. No value: it is gone.
  static std::optional<ProcessHandle> open(const ProcessId& id);

  [[nodiscard]] const ProcessId& id() const { return id_; }
  [[nodiscard]] std::int32_t pid() const { return id_.pid; }
  [[nodiscard]] int pidfd() const { return pidfd_.get(); }
  [[nodiscard]] explicit operator bool() const { return static_cast<bool>(pidfd_); }

  /// Ended, reaped or not.
  [[nodiscard]] bool ended() const;
  /// Waits until it has ended; false at the deadline.
  [[nodiscard]] bool wait_ended(std::chrono::steady_clock::time_point deadline) const;

  /// Sends through the pidfd, after comparing the start time once more. False: gone, or not
  /// permitted.
  bool signal(int number) const;

  /// Passes on a signal that was meant for it as well; the receiver sees SI_QUEUE and our pid.
  bool forward(int number) const;

  [[nodiscard]] std::optional<int> last_signal() const { return last_signal_; }

 private:
  ProcessId id_{};
  UniqueFd pidfd_{};
  mutable std::optional<int> last_signal_{};
};

/// Which processes belong to a job.
struct Family {
  /// Its descendants belong to the job (it is a subreaper, so they cannot get away by forking
  /// twice). 0: nobody.
  std::int32_t ancestor{};
  /// "LOCKSTEP_JOB=..."; whoever has it in the environment belongs to the job, and so do its
  /// descendants. Empty: nobody.
  std::string marker{};
  /// Never touched, nor what descends from them: they live from case to case.
  std::vector<ProcessId> spared{};
};

/// The members that exist now, zombies included. A process in a session that a member leads is a
/// member too; the caller and those above it never are.
std::vector<ProcessStat> members_of(const Family& family);

struct EndedProcess {
  ProcessId id{};
  std::string name{};
  char state{};  ///< As found, before we did anything.
  bool gone{};   ///< False: it survived KILL until the deadline (uninterruptible sleep).
};

struct EndHooks {
  /// Hears of each living member once, when it was stopped and before it is killed.
  std::function<void(const ProcessStat&)> before_kill{};
  /// Must reap this zombie, a child of this process. None: its status is dropped.
  std::function<void(const ProcessStat&)> reap{};
};

/// STOPs every member, looks again until no new one appears, KILLs them all through their pidfds,
/// waits, and looks once more. Returns every member that was found, zombies included.
std::vector<EndedProcess> end_everything(const Family& family,
                                         std::chrono::steady_clock::time_point deadline,
                                         const EndHooks& hooks = {});

}  // namespace lockstep::os
