// What is told of a job while it runs, and when it is ended. A deadlock that is proven ends it if
// the user wants that, a stall only if the user set a limit; nothing else does but the user.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "harness/session/clock.h"
#include "harness/session/live_job.h"
#include "harness/session/notices.h"
#include "harness/session/stall_schedule.h"

namespace lockstep::session {

class JobHosts;

enum class OnHang : std::uint8_t { kEnd, kReport };

/// Of replicas that were watched as they parted.
enum class OnDivergence : std::uint8_t { kReport, kEnd };

struct WatchOptions {
  OnHang on_hang{OnHang::kEnd};
  OnDivergence on_divergence{OnDivergence::kReport};
  bool values{};             ///< They are watched.
  double stall_limit_s{};    ///< 0: none.
  double time_limit_s{};     ///< 0: none.
  bool several_hosts{};      ///< The run directory may lie beside those of other hosts.
  bool ranks_are_started{};  ///< By us: nobody starts one again that failed.
};

class Watch {
 public:
  /// Writes down what was done to the job, and why.
  using Record = std::function<void(const Acted&)>;

  /// `hosts`: null where the job is on this one.
  Watch(const WatchOptions& options, const Clock& clock, const Notices& notices, Record record,
        JobHosts* hosts = nullptr);

  /// Why the job can never go on. None once that was told.
  [[nodiscard]] std::optional<std::string> certain_hang(const Run& live) const;

  /// Waits until the job is over, or must be ended: why. Empty: it is over.
  std::string follow(LiveJob& job);

 private:
  std::optional<std::string> at_deadline(LiveJob& job);
  std::optional<std::string> look_at_hosts(LiveJob& job);
  std::optional<std::string> tell_hang(const std::string& what, LiveJob& job);
  void agree_with_hosts(const std::string& what, LiveJob& job);
  [[nodiscard]] bool may_never_join(const LiveJob& job) const;
  void look_soon_at_joining(const LiveJob& job);
  std::optional<std::string> look_at_joining(LiveJob& job);
  std::optional<std::string> look_at_values(LiveJob& job);
  std::string give_up(LiveJob& job);
  std::string interrupted(const std::string& why, std::uint64_t since_ns, LiveJob& job);
  void look_before_notice(LiveJob& job);
  void tell_stall(LiveJob& job);
  void tell_activity(std::string_view word, const std::string& what, const LiveJob& job) const;
  [[nodiscard]] Duration stalled_for(const LiveJob& job) const;

  WatchOptions options_;
  const Clock& clock_;
  const Notices& notices_;
  Record record_;
  JobHosts* hosts_;
  StallSchedule schedule_;
  TimePoint next_look_at_joining_{TimePoint::max()};
  TimePoint ends_at_{TimePoint::max()};
  TimePoint next_look_at_values_{TimePoint::max()};
  bool hang_told_{}, others_waited_{};
};

}  // namespace lockstep::session
