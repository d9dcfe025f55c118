// One process of a job as the launcher holds it, and how all of a job is ended: TERM and grace
// where asked for, then STOP, rescan and KILL, then the proof that nothing is left. What is done is
// written into the journal before it is done.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "harness/history/run.h"
#include "harness/os/exit_report.h"
#include "harness/os/job.h"

namespace lockstep::history {
class JournalWriter;
}

namespace lockstep::launch {

class Lineage;
class Supervisor;

/// What we did to a process last, for the record of its end.
struct OurSignal {
  std::int32_t number{};
  std::string reason{};
};

/// A signal that ends, which somebody of the job sent to a process or its group.
struct SentSignal {
  std::int32_t number{};
  std::uint64_t at_ns{};
  std::string sender{};  ///< "pid 4711 (torchrun)".
};

struct JobProcess {
  Role role{Role::kRank};
  std::optional<Rank> rank{};
  os::ProcessHandle process{};
  std::optional<os::ExitReport> ended{};
  std::uint64_t ended_ns{};
  std::optional<OurSignal> signalled{};
  std::string last_line{};         ///< Of its stderr, where it raised nothing there.
  std::vector<SentSignal> sent{};  ///< By time.
  bool status_says_nothing{};      ///< Its end is told without it.
  bool orphan{};                   ///< Its launcher was killed, and the command is over.
  [[nodiscard]] bool lives() const { return !ended; }
  /// The signal that it ended by: of that, or by itself a while after it was asked to, as far as
  /// its status shows (of an abort, ended_as_asked() knows more). None if it ended for
  /// another reason.
  [[nodiscard]] const SentSignal* ended_by() const;
};

/// Takes the end of a process that has ended, reaping it if it is a child of ours, and writes it
/// down. `journal` may be null.
void take_end(JobProcess& process, history::JournalWriter* journal);
/// Writes down an end that was taken.
void record_end(const JobProcess& process, history::JournalWriter* journal);

/// The proof that nothing is left, or the names of what is.
struct EndReport {
  std::vector<os::EndedProcess> leftovers{};  ///< None of the job's own processes, but what they
                                              ///< left behind; all ended unless `!gone`.
  std::vector<os::ProcessStat> spared{};      ///< Left as they are, because they may be.
  [[nodiscard]] bool clean() const;           ///< Nothing else of the job lives.
};

/// Ends the processes of a job and everything that belongs to it.
class JobEnding {
 public:
  using Clock = std::chrono::steady_clock;

  /// `lineage`: what is known of processes that are left. `journal` may be null.
  JobEnding(Supervisor& supervisor, history::JournalWriter* journal,
            std::vector<JobProcess*> processes, const Lineage& lineage)
      : supervisor_(supervisor),
        journal_(journal),
        processes_(std::move(processes)),
        lineage_(lineage) {}

  /// TERM, then time to end in good order, cut short by a second interrupt or the guard's death.
  /// `meanwhile` is called again and again.
  void ask(const std::string& reason, std::chrono::milliseconds grace,
           const std::function<void()>& meanwhile = {});
  /// STOP, rescan, KILL; bounded. With nothing alive it only looks for leftovers.
  EndReport kill(const std::string& reason);

 private:
  void before_kill(const os::ProcessStat& process, const std::string& reason);
  void reap(const os::ProcessStat& zombie);
  JobProcess* find(const os::ProcessId& id);
  void record_act(const char* action, const JobProcess* process, std::int32_t pid,
                  const std::string& reason);

  Supervisor& supervisor_;
  history::JournalWriter* journal_;
  std::vector<JobProcess*> processes_;
  const Lineage& lineage_;
};

}  // namespace lockstep::launch
