// One run of a user's command, from its plan to its report: what is written down, who watches the
// job, and what follows from its end.
#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "harness/base/error.h"
#include "harness/history/follower.h"
#include "harness/history/journal.h"
#include "harness/history/plan.h"
#include "harness/history/run_directory.h"
#include "harness/session/clock.h"
#include "harness/session/live_job.h"
#include "harness/session/notices.h"
#include "harness/session/watch.h"
#include "harness/verdict/report.h"

namespace lockstep::session {

/// What a job that is started writes to and is looked at through.
struct Records {
  history::JournalWriter& journal;
  history::Follower& follower;
  /// Why the job can never go on, as far as its history shows.
  std::function<std::optional<std::string>(const Run& live)> certain_hang;
};
using StartJob = std::function<Result<std::unique_ptr<LiveJob>>(const Records& records)>;

class Session {
 public:
  Session(Plan plan, history::RunDirectory& directory, const WatchOptions& options,
          const Clock& clock, const Notices& notices);

  /// Errors: as `start`; kIo, kEnvironment: its history cannot be written, or read back.
  Result<Report> run(const StartJob& start);
  /// The report is that of all hosts of the job, whose runs lie beside each other.
  [[nodiscard]] bool is_of_all_hosts() const { return is_of_all_hosts_; }

 private:
  Result<void> follow(history::JournalWriter& journal, const StartJob& start, JobHosts* hosts);

  Plan plan_;
  history::RunDirectory& directory_;
  WatchOptions options_;
  const Clock& clock_;
  const Notices& notices_;
  bool is_of_all_hosts_{};
};

/// What was left behind, and what became of it.
void tell_leftovers(const launch::EndReport& report, const Notices& notices);

}  // namespace lockstep::session
