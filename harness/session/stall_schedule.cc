#include "harness/session/stall_schedule.h"

#include <algorithm>

#include "checkers/hang/stall.h"

namespace lockstep::session {
namespace {

constexpr std::chrono::milliseconds kLookAtStartAfter{1'000};

}  // namespace

StallSchedule::StallSchedule(Duration limit)
    : limit_(limit), notice_after_(checkers::kStallIsNoticedAfter) {}

TimePoint StallSchedule::due(TimePoint last_move) {
  if (last_move != moved_) {
    notice_after_ = std::min<Duration>(checkers::kStallIsNoticedAfter, limit_);
    looks_ = 0;
  }
  moved_ = last_move;
  return moved_ + std::min(next_look(), limit_);
}

StallSchedule::Step StallSchedule::step(Duration stalled) const {
  if (stalled >= limit_)
    return Step::kGiveUp;
  if (stalled >= notice_after_)
    return Step::kTell;
  return stalled >= next_look() ? Step::kLook : Step::kNone;
}

/// Before the notice: at the beginning, which is when ranks come to init_process_group, and
/// half-way.
Duration StallSchedule::next_look() const {
  return looks_ == 0   ? std::min<Duration>(kLookAtStartAfter, notice_after_ / 4)
         : looks_ == 1 ? notice_after_ / 2
                       : notice_after_;
}

}  // namespace lockstep::session
