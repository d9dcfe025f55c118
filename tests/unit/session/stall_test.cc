// Goal: a job that stands still is told of, never ended without a limit, and left alone while it
// moves.
#include <gmock/gmock.h>

#include "tests/support/typed_run.h"
#include "tests/unit/session/fake_job.h"

namespace lockstep::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Kind = launch::RunEvent::Kind;

/// Rank 1 has not come to the call in which rank 0 waits.
lockstep::Run waiting_run() {
  lockstep::Run run = make_run({{all_reduce("dp", 8), all_reduce("dp", 8).at("t.py", 7).pending()},
                                {all_reduce("dp", 8).at("t.py", 7)}});
  run.live = true;
  run.ends.clear();
  return run;
}

/// Its ranks live, and none of them is in a group.
lockstep::Run starting_run() {
  lockstep::Run run = waiting_run();
  run.processes.clear();
  return run;
}

std::uint64_t begin_of(const lockstep::Run& run) { return last_event(run); }

class Stall : public ::testing::Test {
 protected:
  Watched& watched(const lockstep::Run& run, double stall_limit_s = 0) {
    watched_.emplace(run, begin_of(run), session::WatchOptions{.stall_limit_s = stall_limit_s});
    return *watched_;
  }
  std::optional<Watched> watched_{};
};

TEST_F(Stall, IsToldAfterTenSecondsAndAgainAfterTwiceTheTime) {
  Watched& run = watched(waiting_run());
  run.job.is_over_at(seconds(39));
  EXPECT_EQ(run.follow(), "");
  EXPECT_THAT(run.told(), ElementsAre("STALLED  [ 10.00 s]  no rank has moved for 10 s",
                                      "STALLED  [ 20.00 s]  no rank has moved for 20 s"));
  EXPECT_THAT(run.said, ::testing::Contains(HasSubstr("rank 0: in all_reduce dp#1 at t.py:7")));
  EXPECT_THAT(run.said, ::testing::Contains(HasSubstr("rank 1: after all_reduce dp#0 at t.py:7")));
  EXPECT_THAT(run.job.looks, ElementsAre(seconds(5), seconds(10), seconds(20)));
  EXPECT_THAT(run.acts, IsEmpty());
}

TEST_F(Stall, ATimeLimitEndsWhatMovesToo) {
  watched_.emplace(waiting_run(), begin_of(waiting_run()),
                   session::WatchOptions{.time_limit_s = 12});
  for (int second = 1; second < 20; ++second)
    watched_->job.moves_at(seconds(second));
  watched_->job.is_over_at(seconds(20));
  EXPECT_EQ(watched_->follow(), "--time-limit 12 s");
  EXPECT_EQ(watched_->job.elapsed(), seconds(12));
  EXPECT_THAT(watched_->told(), ElementsAre("STOPPING  [ 12.00 s]  --time-limit 12 s"));
  ASSERT_EQ(watched_->acts.size(), 1U);
  EXPECT_EQ(watched_->acts[0].action, "interrupted");
}

TEST_F(Stall, IsToldAgainOnlyAfterAMove) {
  Watched& run = watched(waiting_run());
  run.job.moves_at(seconds(12));
  run.job.is_over_at(seconds(31));
  EXPECT_EQ(run.follow(), "");
  EXPECT_THAT(run.told(), ElementsAre("STALLED  [ 10.00 s]  no rank has moved for 10 s",
                                      "STALLED  [ 22.00 s]  no rank has moved for 10 s"));
}

TEST_F(Stall, IsNotToldOfAJobThatMoves) {
  Watched& run = watched(waiting_run(), 10);
  for (int at = 9; at < 100; at += 9)
    run.job.moves_at(seconds(at));
  run.job.is_over_at(seconds(100));
  EXPECT_EQ(run.follow(), "");
  EXPECT_THAT(run.said, IsEmpty());
}

TEST_F(Stall, IsNotToldWhereTheLookShowsAMove) {
  Watched& run = watched(waiting_run());
  run.job.moves_when_looked_at();
  run.job.is_over_at(seconds(60));
  EXPECT_EQ(run.follow(), "");
  EXPECT_THAT(run.said, IsEmpty());
}

TEST_F(Stall, EndsTheJobAtTheLimitOfTheUser) {
  Watched& run = watched(waiting_run(), 15);
  run.job.is_over_at(seconds(100));
  EXPECT_EQ(run.follow(), "--stall-limit 15 s");
  EXPECT_EQ(run.job.elapsed(), seconds(15));
  EXPECT_THAT(run.told(), ElementsAre("STALLED  [ 10.00 s]  no rank has moved for 10 s",
                                      "STALLED  [ 15.00 s]  --stall-limit 15 s"));
  EXPECT_THAT(run.job.looks_before_the_end, ElementsAre(seconds(15)));
  ASSERT_EQ(run.acts.size(), 1U);
  EXPECT_EQ(run.acts.front().action, "deadline");
  EXPECT_EQ(run.acts.front().reason, "--stall-limit 15 s");
  EXPECT_EQ(run.acts.front().at_ns, begin_of(waiting_run()) + 15'000 * kMs);
}

TEST_F(Stall, ALimitIsCountedFromTheLastMove) {
  Watched& run = watched(waiting_run(), 0.5);
  run.job.moves_at(milliseconds(400));
  run.job.moves_at(milliseconds(800));
  run.job.is_over_at(seconds(100));
  EXPECT_EQ(run.follow(), "--stall-limit 0.5 s");
  EXPECT_EQ(run.job.elapsed(), milliseconds(1'300));
}

TEST_F(Stall, AProgramThatHelpsItselfBeforeTheLimitIsNotEnded) {
  Watched& run = watched(waiting_run(), 15);
  run.job.moves_at(seconds(12));  // The limit of its group is over, and it goes on.
  run.job.is_over_at(seconds(26));
  EXPECT_EQ(run.follow(), "");
  EXPECT_THAT(run.acts, IsEmpty());
}

TEST_F(Stall, IsNotToldOfRanksThatHaveNoGroupBeforeAMinute) {
  Watched& run = watched(starting_run());
  run.job.is_over_at(seconds(100));
  EXPECT_EQ(run.follow(), "");
  EXPECT_THAT(run.told(), ElementsAre("STALLED  [ 80.00 s]  no rank has moved for 80 s"));
  EXPECT_THAT(run.job.looks, ElementsAre(seconds(1), seconds(5), seconds(10), seconds(20),
                                         seconds(40), seconds(80)));
}

TEST_F(Stall, IsToldOfRanksThatHaveNoGroupWhereOneFailed) {
  lockstep::Run run = starting_run();
  run.ends.push_back({.at_ns = begin_of(waiting_run()),
                      .role = Role::kRank,
                      .rank = Rank{1},
                      .pid = 1001,
                      .exit_status = 1});
  Watched& failed = watched(run);
  failed.job.is_over_at(seconds(15));
  EXPECT_EQ(failed.follow(), "");
  EXPECT_THAT(failed.told(), ElementsAre("STALLED  [ 10.00 s]  no rank has moved for 10 s"));
}

TEST_F(Stall, IsNotToldOfARankThatImportsBeforeAMinute) {
  lockstep::Run run = waiting_run();
  StackSample stack = stack_of(run, Rank{1}, {});
  stack.frames.push_back({.file = "<frozen importlib._bootstrap>", .function = "_find_and_load"});
  run.stacks.push_back(stack);
  Watched& imports = watched(run);
  imports.job.is_over_at(seconds(100));
  EXPECT_EQ(imports.follow(), "");
  EXPECT_THAT(imports.told(), ElementsAre("STALLED  [ 80.00 s]  no rank has moved for 80 s"));
}

TEST_F(Stall, AnInterruptEndsTheJobAndIsWrittenDownAsOfWhenItCame) {
  for (const std::uint64_t since_ns : {std::uint64_t{0}, std::uint64_t{77}}) {
    Watched& run = watched(waiting_run());
    run.job.has_event(seconds(3), Kind::kInterrupted, "SIGINT", since_ns);
    EXPECT_EQ(run.follow(), "SIGINT");
    EXPECT_THAT(run.told(), ElementsAre("STOPPING  [  3.00 s]  SIGINT"));
    EXPECT_THAT(run.job.looks_before_the_end, ElementsAre(seconds(3)));
    ASSERT_EQ(run.acts.size(), 1U);
    EXPECT_EQ(run.acts.front().action, "interrupted");
    EXPECT_EQ(run.acts.front().at_ns,
              since_ns != 0 ? since_ns : begin_of(waiting_run()) + 3'000 * kMs);
  }
}

TEST_F(Stall, OrphansAreToldAndEndNothing) {
  Watched& run = watched(waiting_run());
  run.job.has_event(seconds(2), Kind::kOrphaned, "torchrun was killed");
  run.job.has_event(seconds(3), Kind::kRank);
  run.job.is_over_at(seconds(4));
  EXPECT_EQ(run.follow(), "");
  EXPECT_THAT(run.told(), ElementsAre("ORPHANS  [  2.00 s]  torchrun was killed"));
}

}  // namespace
}  // namespace lockstep::testing
