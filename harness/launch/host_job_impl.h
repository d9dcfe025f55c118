// Inside of HostJob: the wait loop.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "harness/base/check.h"
#include "harness/base/clock.h"
#include "harness/history/journal.h"
#include "harness/launch/family_watch.h"
#include "harness/launch/host_job.h"
#include "harness/launch/host_process.h"
#include "harness/launch/job_loop.h"

namespace lockstep::launch {

class HostJob::Impl {
 public:
  using Clock = std::chrono::steady_clock;

  Impl(Supervisor& supervisor, HostJobOptions options);

  Result<void> start(const std::vector<HostSpec>& specs);
  Result<void> send(std::size_t host, std::string_view line);
  Event wait(Clock::time_point deadline);
  void look_at_family();
  EndReport end(const std::string& reason, How how);
  [[nodiscard]] const std::vector<Host>& hosts() const { return shown_; }
  [[nodiscard]] bool ended() const { return ended_; }

 private:
  Result<void> start_host(const HostSpec& spec);
  std::optional<Event> next_event(Clock::time_point deadline);
  void poll_once(Clock::time_point until);
  void read_lines(std::size_t host);
  void take_end(std::size_t host);
  void check_closed(std::size_t host);
  void bound_logs();
  [[nodiscard]] Clock::time_point next_wake(Clock::time_point deadline) const;

  /// A record that cannot be written is seen as a gap by the reader and said again by
  /// JournalWriter::close().
  template <class E>
  void record(E event) {
    if (options_.journal != nullptr) [[maybe_unused]]
      const Result<void> written = options_.journal->append(event);
  }
  void record_act(const char* action, const std::string& reason);
  [[nodiscard]] std::vector<Watched> watched() const;

  Supervisor& supervisor_;
  HostJobOptions options_;
  JobLoop loop_;
  FamilyWatch family_;
  std::vector<HostProcess> hosts_{};
  std::vector<Host> shown_{};  // Of hosts_, for callers.
  std::deque<Event> ready_{};
  Clock::time_point logs_checked_{};
  bool ended_{};
};

}  // namespace lockstep::launch
