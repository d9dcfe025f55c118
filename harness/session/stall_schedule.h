// When a job that stands still is looked at, told of and given up. Arithmetic only.
#pragma once

#include <chrono>
#include <cstdint>

#include "harness/session/clock.h"

namespace lockstep::session {

/// Of a job that stands still for hours: each look is kept.
inline constexpr std::chrono::minutes kLookAtLeastEvery{5};

class StallSchedule {
 public:
  /// `limit`: how long the job may stand still. Duration::max(): for ever.
  explicit StallSchedule(Duration limit);

  enum class Step : std::uint8_t { kNone, kLook, kTell, kGiveUp };

  /// When the next step is due of a job that last moved then. A move begins all anew.
  TimePoint due(TimePoint last_move);
  /// What is due of a job that stands still for so long.
  [[nodiscard]] Step step(Duration stalled) const;

  /// Returns the number of looks since the last move, before a notice.
  int looked() { return ++looks_; }
  /// Each notice comes after twice the time of the one before.
  void told() { notice_after_ *= 2; }
  [[nodiscard]] Duration notice_after() const { return notice_after_; }

 private:
  [[nodiscard]] Duration next_look() const;

  Duration limit_;
  Duration notice_after_;
  TimePoint moved_{};
  int looks_{};
};

}  // namespace lockstep::session
