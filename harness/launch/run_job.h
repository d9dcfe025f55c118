// The processes of `lockstep run`: ranks of an unknown program that are started here, or a command
// that starts them itself and is only followed. This layer starts, watches, samples and ends them
// and writes what it saw and did into the journal; what it means is for others to say.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "harness/base/error.h"
#include "harness/launch/job_process.h"
#include "harness/launch/prober.h"
#include "harness/launch/supervisor.h"

namespace lockstep::launch {

struct RunJobOptions : ProbeOptions {
  std::vector<std::string> command{};
  std::int32_t ranks{};  ///< How many to start; 0: the command starts them, and is left as it is.
  std::map<std::string, std::string> environment{};  ///< Added to ours.
  std::string logs_directory{};                      ///< <rank>.out and <rank>.err of our ranks.
  std::uint64_t log_bytes_max{std::uint64_t{256} << 20};  ///< Per file.
  std::chrono::milliseconds grace{3'000};                 ///< Between TERM and KILL.
  bool keep{};  ///< What is left after the last rank is left as it is; else only what is ...
  std::vector<std::string> allowed_survivors{};  ///< ... called one of these.
};

/// What wait() came back with.
struct RunEvent {
  enum class Kind : std::uint8_t {
    kRank,         ///< A process was found to be a rank.
    kEnded,        ///< A process of the job ended.
    kOrphaned,     ///< Who started ranks was killed while they live (`text`).
    kStop,         ///< StopWhen gave the reason in `text`.
    kInterrupted,  ///< SIGINT, SIGTERM, SIGHUP or the guard's death (`text`).
    kOver,         ///< The command and all ranks have ended, but for those of a launcher that was
                   ///< killed: they are left behind.
    kDeadline,     ///< The deadline passed.
  };
  Kind kind{};
  std::string text{};
  /// Of kInterrupted: when the signal came, if processes of the job got it as well. What they did
  /// from then on, they did because of it. 0: they do not know of it.
  std::uint64_t since_ns{};
};

class RunJob {
 public:
  using Clock = std::chrono::steady_clock;

  /// Errors: kEnvironment, the command cannot be started (what was started has been ended); kIo.
  static Result<std::unique_ptr<RunJob>> start(Supervisor& supervisor, RunJobOptions options);
  ~RunJob();  // ends what still lives
  RunJob(const RunJob&) = delete;
  RunJob& operator=(const RunJob&) = delete;

  RunEvent wait(Clock::time_point deadline);

  /// The processes that are ranks, or became one; and the command, where it starts them itself.
  [[nodiscard]] std::vector<const JobProcess*> processes() const;
  /// Of the started ranks, or the largest default group that was seen.
  [[nodiscard]] std::int32_t world_size() const;
  /// When a rank last did something that its history shows.
  [[nodiscard]] Clock::time_point last_move() const;
  /// Two of its processes were given one rank, by one launcher.
  [[nodiscard]] bool share_a_rank() const;
  /// A process that was told a rank, or of whom nobody knows whether it was one, raised and is
  /// gone.
  [[nodiscard]] bool lost_a_child() const;
  /// Whoever of it is no rank sleeps without a limit, for the end or the words of others: none of
  /// them starts a process before one of the others does something.
  [[nodiscard]] bool others_wait() const;
  /// A look at what every rank does now, written into the journal; for an end that nothing proves.
  void sample(bool before_the_end = false);
  /// What they do a while after such a look, without disturbing them again.
  void look_again();

  /// TERM, grace, KILL to everything of the job. Idempotent.
  EndReport end(const std::string& reason);
  /// What is left after the last rank: helpers get the time they need to end by themselves.
  EndReport clear();

 private:
  class Impl;
  explicit RunJob(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep::launch
