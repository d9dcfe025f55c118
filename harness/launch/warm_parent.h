// A program started once in warm mode, from which ranks are forked (protocol/warm_server.h is its
// side). It is kept from case to case; when it dies, the next fork starts it anew and says why the
// last one failed.
#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "harness/base/error.h"
#include "harness/base/unique_fd.h"
#include "harness/launch/supervisor.h"
#include "harness/os/job.h"
#include "harness/protocol/fd_channel.h"

namespace lockstep::launch {

struct WarmOptions {
  /// Program and arguments that make it call protocol::serve_warm(kWarmControlFd, ...).
  std::vector<std::string> command{};
  /// Added to this process's environment.
  std::map<std::string, std::string> environment{};
  /// What the warm parent itself prints goes here (bounded by its silence: it prints only when it
  /// fails).
  std::string log_file{};
  std::chrono::milliseconds start_limit{60'000};
  std::chrono::milliseconds fork_limit{10'000};
};

/// A forked rank: our child, verified, leading its own process group.
struct ForkedHost {
  os::ProcessHandle process{};
  UniqueFd conversation{};
};

class WarmParent {
 public:
  WarmParent(Supervisor& supervisor, WarmOptions options);
  ~WarmParent();  // ends the warm parent and reaps it
  WarmParent(const WarmParent&) = delete;
  WarmParent& operator=(const WarmParent&) = delete;

  /// Starts it unless it runs. fork_host() does so by itself; calling this first takes the loading
  /// out of a case.
  Result<void> ensure_started();

  /// Forks a rank with `environment` added, writing to the two descriptors.
  Result<ForkedHost> fork_host(const std::map<std::string, std::string>& environment, int stdout_fd,
                               int stderr_fd);

  /// The running process, or none. For tests and for the journal.
  [[nodiscard]] const os::ProcessHandle* process() const;

 private:
  Result<void> start();
  void end();
  Error lost(const std::string& what_for);
  Result<protocol::Json> receive(std::chrono::milliseconds limit, const std::string& what_for);
  Result<ForkedHost> adopt(std::int32_t pid, UniqueFd conversation) const;

  Supervisor& supervisor_;
  WarmOptions options_;
  os::ProcessHandle process_{};
  UniqueFd control_{};
  std::uint64_t last_id_{};
};

}  // namespace lockstep::launch
