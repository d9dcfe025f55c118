// The processes of one case: N ranks and perhaps a reference host, driven over their conversations.
// This layer carries lines and knows nothing of what they say; it starts, watches, samples and ends
// processes and writes what it saw and did into the journal.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "harness/base/error.h"
#include "harness/history/run.h"
#include "harness/launch/job_process.h"
#include "harness/launch/prober.h"
#include "harness/launch/supervisor.h"
#include "harness/launch/warm_parent.h"
#include "harness/os/exit_report.h"
#include "harness/os/job.h"

namespace lockstep::launch {

struct HostSpec {
  Role role{Role::kRank};
  std::optional<Rank> rank{};
  WarmParent* warm{};  ///< Forked from this one; must outlive the job.
  std::map<std::string, std::string> environment{};
};

struct HostJobOptions : ProbeOptions {
  std::string
      logs_directory{};  ///< RUN/logs: <rank>.out and <rank>.err, reference.out and reference.err.
  std::uint64_t log_bytes_max{std::uint64_t{16}
                              << 20};      ///< Per file; what goes beyond is cut and noted.
  std::chrono::milliseconds grace{5'000};  ///< Between TERM and KILL where TERM is asked for.
};

/// What wait() came back with.
struct Event {
  enum class Kind : std::uint8_t {
    kLine,         ///< `text` is a line of host `host`.
    kEnded,        ///< Host `host` ended with `status`; all its lines were delivered before.
    kStop,         ///< StopWhen gave the reason in `text`.
    kInterrupted,  ///< SIGINT, SIGTERM, SIGHUP or the guard's death (`text`): end the job and judge
                   ///< what there is.
    kDeadline,     ///< The deadline passed.
    kProtocol,  ///< Host `host` broke the conversation's framing (`text`); it is not read any more.
  };
  Kind kind{};
  std::size_t host{};  ///< Index into hosts().
  std::string text{};
  os::ExitReport status{};
};

/// One host as it stands.
struct Host {
  Role role{};
  std::optional<Rank> rank{};
  std::int32_t pid{};
  std::uint64_t start_ticks{};
  std::optional<os::ExitReport> ended{};
};

class HostJob {
 public:
  /// Starts all hosts. On an error those already started have been ended.
  static Result<std::unique_ptr<HostJob>> start(Supervisor& supervisor, HostJobOptions options,
                                                const std::vector<HostSpec>& specs);
  ~HostJob();  // ends what still lives
  HostJob(const HostJob&) = delete;
  HostJob& operator=(const HostJob&) = delete;

  [[nodiscard]] const std::vector<Host>& hosts() const;

  /// Queues one line (newline included). Errors: kHost when the host has ended.
  Result<void> send(std::size_t host, std::string_view line);

  /// The next event. A deadline that passed while this process was stopped is extended by the time
  /// lost.
  Event wait(std::chrono::steady_clock::time_point deadline);

  /// Notes which processes the hosts have started, so that what is left of them at the end can be
  /// told whose it is.
  void look_at_family();

  enum class How : std::uint8_t {
    kKill,  ///< Straight to STOP, rescan, KILL: our own hung rank hosts.
    kTerm,  ///< TERM and the grace time first.
  };
  /// Ends every host that lives and everything they left behind; bounded. Idempotent. With no host
  /// alive it only looks for leftovers, so it is also the end of a healthy case.
  EndReport end(const std::string& reason, How how = How::kKill);

 private:
  class Impl;
  explicit HostJob(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep::launch
