// Goal: a job that stands still is looked at before it is told of, told of less and less often, and
// given up at the user's limit; a move begins all anew.
#include "harness/session/stall_schedule.h"

#include <gtest/gtest.h>

namespace lockstep::session {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using Step = StallSchedule::Step;

constexpr TimePoint kMoved{seconds(100)};

TEST(StallSchedule, LooksTwiceBeforeTheNotice) {
  StallSchedule schedule(Duration::max());
  EXPECT_EQ(schedule.due(kMoved), kMoved + seconds(1));
  EXPECT_EQ(schedule.step(milliseconds(999)), Step::kNone);
  EXPECT_EQ(schedule.step(seconds(1)), Step::kLook);
  EXPECT_EQ(schedule.looked(), 1);
  EXPECT_EQ(schedule.due(kMoved), kMoved + seconds(5));
  EXPECT_EQ(schedule.step(seconds(5)), Step::kLook);
  EXPECT_EQ(schedule.looked(), 2);
  EXPECT_EQ(schedule.due(kMoved), kMoved + seconds(10));
  EXPECT_EQ(schedule.step(milliseconds(9'999)), Step::kNone);
  EXPECT_EQ(schedule.step(seconds(10)), Step::kTell);
}

TEST(StallSchedule, EachNoticeComesAfterTwiceTheTime) {
  StallSchedule schedule(Duration::max());
  schedule.due(kMoved);
  schedule.looked();
  schedule.looked();
  for (const int after : {10, 20, 40, 80, 160}) {
    EXPECT_EQ(schedule.due(kMoved), kMoved + seconds(after));
    EXPECT_EQ(schedule.step(seconds(after)), Step::kTell);
    schedule.told();
    EXPECT_EQ(schedule.step(seconds(after)), Step::kNone);
  }
}

TEST(StallSchedule, AMoveBeginsAllAnew) {
  StallSchedule schedule(Duration::max());
  schedule.due(kMoved);
  schedule.looked();
  schedule.looked();
  schedule.told();
  const TimePoint later = kMoved + seconds(15);
  EXPECT_EQ(schedule.due(later), later + seconds(1));
  EXPECT_EQ(schedule.notice_after(), seconds(10));
  EXPECT_EQ(schedule.looked(), 1);
}

TEST(StallSchedule, TheLimitComesFirst) {
  StallSchedule schedule(milliseconds(800));
  EXPECT_EQ(schedule.due(kMoved), kMoved + milliseconds(200));
  EXPECT_EQ(schedule.step(milliseconds(200)), Step::kLook);
  schedule.looked();
  schedule.looked();
  EXPECT_EQ(schedule.due(kMoved), kMoved + milliseconds(800));
  EXPECT_EQ(schedule.step(milliseconds(800)), Step::kGiveUp);
}

TEST(StallSchedule, ALimitBetweenTwoNotices) {
  StallSchedule schedule(seconds(15));
  schedule.due(kMoved);
  schedule.looked();
  schedule.looked();
  EXPECT_EQ(schedule.step(seconds(10)), Step::kTell);
  schedule.told();
  EXPECT_EQ(schedule.due(kMoved), kMoved + seconds(15));
  EXPECT_EQ(schedule.step(seconds(15)), Step::kGiveUp);
}

}  // namespace
}  // namespace lockstep::session
