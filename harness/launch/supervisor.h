// What the supervising process has of its surroundings: the job's id, the guard that watches it,
// interrupts, the processes that outlive one case, and the paths that must not be left behind. One
// per process.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "harness/base/error.h"
#include "harness/base/unique_fd.h"
#include "harness/launch/cleanup_page.h"
#include "harness/launch/spawn.h"
#include "harness/os/job.h"
#include "harness/os/stack_sampler.h"

namespace lockstep::launch {

/// Every process of the job carries LOCKSTEP_JOB=<id> in its environment, so a leftover can be
/// proven ours.
inline constexpr const char* kJobMarker = "LOCKSTEP_JOB";

class Supervisor {
 public:
  /// Makes this process a supervisor without a guard (tests, and programs that embed the launcher).
  static Result<std::unique_ptr<Supervisor>> unguarded();
  ~Supervisor();
  Supervisor(const Supervisor&) = delete;
  Supervisor& operator=(const Supervisor&) = delete;

  [[nodiscard]] const std::string& job_id() const { return job_id_; }
  /// As whoever started us left them, for what we start for a user.
  [[nodiscard]] const SignalsAtStart& signals_at_start() const { return signals_at_start_; }

  /// Why the work must stop: "SIGINT", "SIGTERM", "SIGHUP", "the guard was killed"; empty while it
  /// need not. A second signal ends this process with 130 at once (the guard then ends the job);
  /// without a guard it only counts. Cheap: ask as often as you like between two waits.
  [[nodiscard]] std::string interrupted();
  [[nodiscard]] int interrupts() const;
  [[nodiscard]] bool guard_died();

  /// Readable when interrupted() may have become true; for poll(2).
  [[nodiscard]] int interrupt_fd() const { return interrupt_event_.get(); }
  void drain_interrupt_fd();
  [[nodiscard]] int guard_fd() const { return guard_.pidfd(); }

  /// Kept from case to case, because reading the objects of a process is most of the cost.
  [[nodiscard]] os::StackSampler& stack_sampler() { return stack_sampler_; }

  /// Removes `path` (file or directory) when the handle goes, or when this process dies first.
  Result<CleanupPage::Handle> remove_at_end(const std::string& path);
  /// Moves the files of `live_directory` to `destination` if this process dies before the handle
  /// goes; the directory itself is then removed. When the handle goes in time it does nothing: the
  /// owner has moved them.
  Result<CleanupPage::Handle> rescue_at_death(const std::string& live_directory,
                                              const std::string& destination);
  /// Writes RUN/job, which says that this job lives, and tells what we start from now on where RUN
  /// is. While the handle lives, the message about this process's death names it.
  Result<CleanupPage::Handle> announce_run(const std::string& run_directory);

  /// Processes that may live from case to case (warm parents); not leftovers of a case.
  void keep(const os::ProcessHandle& process);
  void release(const os::ProcessHandle& process);
  /// This one may outlive the job, and us.
  Result<void> let_live(const os::ProcessId& process);

  /// Everything of this job except kept processes and their like: what os::end_everything() asks
  /// for.
  [[nodiscard]] os::Family family() const;

 private:
  friend int run_guarded(const std::function<int(Supervisor&)>& body);
  Supervisor() = default;
  static Result<std::unique_ptr<Supervisor>> make(std::string job_id,
                                                  std::shared_ptr<CleanupPage> cleanup);

  std::string job_id_{};
  SignalsAtStart signals_at_start_{};
  os::ProcessHandle guard_{};
  UniqueFd interrupt_event_{};
  bool guard_dead_{};
  std::shared_ptr<CleanupPage> cleanup_{};
  UniqueFd job_file_{};
  std::vector<os::ProcessId> kept_{};
  os::StackSampler stack_sampler_{};
};

}  // namespace lockstep::launch
