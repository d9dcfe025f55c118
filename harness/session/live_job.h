// A job that runs, as far as the policy of `run` looks at it: what it does, what its history shows,
// and how it is ended.
#pragma once

#include <cstdint>
#include <string>

#include "harness/base/rank_set.h"
#include "harness/history/run.h"
#include "harness/launch/job_process.h"
#include "harness/launch/run_job.h"
#include "harness/session/clock.h"

namespace lockstep::session {

class LiveJob {
 public:
  LiveJob() = default;
  virtual ~LiveJob() = default;
  LiveJob(const LiveJob&) = delete;
  LiveJob& operator=(const LiveJob&) = delete;

  virtual launch::RunEvent wait(TimePoint deadline) = 0;
  /// Writes down what every rank does now.
  virtual void sample(bool before_the_end) = 0;
  /// What they do a while after that, without disturbing them again.
  virtual void look_again() = 0;
  /// When a rank last did something that its history shows.
  [[nodiscard]] virtual TimePoint last_move() const = 0;
  /// The ranks of whom a process lives.
  [[nodiscard]] virtual RankSet living() const = 0;
  /// Two of its processes were given one rank, by one launcher.
  [[nodiscard]] virtual bool share_a_rank() const = 0;
  /// As of launch::RunJob.
  [[nodiscard]] virtual bool lost_a_child() const = 0;
  [[nodiscard]] virtual bool others_wait() const = 0;
  /// As far as it was read.
  [[nodiscard]] virtual const Run& history() const = 0;
  virtual void read_on() = 0;
  [[nodiscard]] virtual std::int32_t world_size() const = 0;

  virtual launch::EndReport end(const std::string& reason) = 0;
  /// Of a job that is over.
  virtual launch::EndReport clear() = 0;
};

}  // namespace lockstep::session
