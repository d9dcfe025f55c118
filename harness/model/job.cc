#include "harness/model/job.h"

namespace lockstep {

std::uint64_t Job::first_act_ns() const {
  if (!first_act_ns_)
    first_act_ns_ = lockstep::first_act_ns(run_);
  return *first_act_ns_;
}

const std::vector<GroupView>& Job::groups() const {
  if (!groups_)
    groups_ = group_views(run_, first_act_ns());
  return *groups_;
}

const std::vector<Failure>& Job::failures() const {
  if (!failures_)
    failures_ = failures_of(run_, groups());
  return *failures_;
}

const std::vector<Gap>& Job::gaps() const {
  if (!gaps_)
    gaps_ = gaps_of(run_);
  return *gaps_;
}

}  // namespace lockstep
