// The processes of `lockstep run` and the history that they write.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "harness/history/follower.h"
#include "harness/session/live_job.h"

namespace lockstep::session {

class FollowedJob final : public LiveJob {
 public:
  /// `follower` is the one that the job was given.
  FollowedJob(std::unique_ptr<launch::RunJob> job, history::Follower& follower)
      : job_(std::move(job)), follower_(follower) {}

  launch::RunEvent wait(TimePoint deadline) override { return job_->wait(deadline); }
  void sample(bool before_the_end) override { job_->sample(before_the_end); }
  void look_again() override { job_->look_again(); }
  [[nodiscard]] TimePoint last_move() const override { return job_->last_move(); }
  [[nodiscard]] RankSet living() const override {
    RankSet living;
    for (const launch::JobProcess* const process : job_->processes()) {
      if (process->rank && process->lives())
        living.insert(*process->rank);
    }
    return living;
  }
  [[nodiscard]] bool share_a_rank() const override { return job_->share_a_rank(); }
  [[nodiscard]] bool lost_a_child() const override { return job_->lost_a_child(); }
  [[nodiscard]] bool others_wait() const override { return job_->others_wait(); }
  [[nodiscard]] const Run& history() const override { return follower_.run(); }
  void read_on() override { follower_.poll(); }
  [[nodiscard]] std::int32_t world_size() const override { return job_->world_size(); }
  launch::EndReport end(const std::string& reason) override { return job_->end(reason); }
  launch::EndReport clear() override { return job_->clear(); }

 private:
  std::unique_ptr<launch::RunJob> job_;
  history::Follower& follower_;
};

}  // namespace lockstep::session
