// Looks at ranks that stand still, least intrusive first: heads of the history, then stacks of the
// threads that wait, then two readings of their states. The stacks come first because a ptrace stop
// is a context switch, and would spoil a reading taken before it.
#pragma once

#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "harness/history/follower.h"
#include "harness/history/journal.h"
#include "harness/history/run.h"
#include "harness/launch/host_job.h"
#include "harness/os/stack_sampler.h"

namespace lockstep::launch {

class Prober {
 public:
  using Clock = std::chrono::steady_clock;

  Prober(const HostJobOptions& options, os::StackSampler& sampler)
      : options_(options), sampler_(sampler) {}

  /// Does what is due now. A value: StopWhen's reason to stop.
  std::optional<std::string> step(const std::vector<Host>& hosts);
  /// When step() has something to do next.
  [[nodiscard]] Clock::time_point due() const { return due_; }
  /// A line went or came, or a process ended: what was fruitless before may not be now.
  void something_happened();

 private:
  enum class Stage : std::uint8_t { kWatching, kFirstReading, kSecondReading };
  struct Watched {
    std::optional<history::Head> head{};
    Clock::time_point since{};
  };

  /// Takes the new heads in. True if a rank that has something outstanding stands still for long
  /// enough.
  bool someone_stands_still(const std::vector<Host>& hosts);
  void sample_stacks(const std::vector<Host>& hosts);
  void sample_stack(const Host& host, std::int32_t tid, Clock::time_point deadline);
  void read_states(const std::vector<Host>& hosts);
  template <class E>
  void record(const E& event) {
    // A record that cannot be written is seen as a gap by the reader.
    if (options_.journal != nullptr) [[maybe_unused]]
      const Result<void> written = options_.journal->append(event);
  }
  void go_on(Stage stage, std::chrono::milliseconds after);

  const HostJobOptions& options_;
  os::StackSampler& sampler_;
  Stage stage_{Stage::kWatching};
  Clock::time_point due_{Clock::time_point::max()};  // Until something happens.
  Clock::time_point not_before_{};
  std::chrono::milliseconds pause_{};
  std::map<std::int32_t, Watched> watched_{};  // By pid.
  bool refusal_noted_{};
};

}  // namespace lockstep::launch
