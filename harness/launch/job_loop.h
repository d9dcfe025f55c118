// The wait that all jobs have in common: for the ends of their processes, for an interrupt, for the
// guard's death, for the next look at ranks that stand still. What an end means, and what else is
// waited for, is the job's.
#pragma once

#include <poll.h>

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "harness/launch/prober.h"
#include "harness/launch/supervisor.h"

namespace lockstep::launch {

class JobLoop {
 public:
  using Clock = std::chrono::steady_clock;

  /// Both must outlive it.
  JobLoop(Supervisor& supervisor, const ProbeOptions& options)
      : supervisor_(supervisor), prober_(options, supervisor.stack_sampler()) {}

  [[nodiscard]] Prober& prober() { return prober_; }
  [[nodiscard]] const Prober& prober() const { return prober_; }

  /// Why the work must stop: told once for each signal, and once for the guard's death.
  std::optional<std::string> new_interrupt();
  /// StopWhen's reason to stop, where a look was due and gave one.
  template <class Living>  // Gives them as std::vector<Watched>.
  std::optional<std::string> probe(const Living& living) {
    return Clock::now() < prober_.due() ? std::nullopt : prober_.step(living());
  }
  /// Waits until one of these processes has ended, one of `others` is ready, the work must stop, or
  /// `until`. True if anything of it happened; `others` say what is ready of them.
  bool wait(const std::vector<const os::ProcessHandle*>& living, std::vector<pollfd>& others,
            Clock::time_point until);

 private:
  Supervisor& supervisor_;
  Prober prober_;
  int interrupts_told_{};
  bool guard_death_told_{};
};

}  // namespace lockstep::launch
