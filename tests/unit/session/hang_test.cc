// Goal: only a hang that is certain ends a job, and only if the user wants that; it is told once.
#include <gmock/gmock.h>

#include "tests/support/typed_run.h"
#include "tests/unit/session/fake_job.h"

namespace lockstep::testing {
namespace {

using session::OnHang;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Kind = launch::RunEvent::Kind;

/// Ranks 0 and 1 wait in two groups in opposite order.
lockstep::Run cycle() {
  lockstep::Run run = make_run({{all_reduce("a", 8).pending()}, {all_reduce("b", 8).pending()}});
  hang(run, false);
  return run;
}

/// Rank 2, which is in a group of its own, was seen at work `later`.
lockstep::Run cycle_beside_a_rank_that_moves(milliseconds later) {
  lockstep::Run run = make_run(
      {{all_reduce("a", 8).pending()}, {all_reduce("b", 8).pending()}, {all_reduce("c", 8)}});
  for (const char* const group : {"a", "b"})
    set_members(run, group, {Rank{0}, Rank{1}});
  set_members(run, "c", {Rank{2}});
  hang(run, false);
  for (StateSample& sample : run.states) {
    sample.at_ns += static_cast<std::uint64_t>(later.count()) * kMs;
    if (sample.rank == Rank{2})
      sample.threads.front().cpu_ns += sample.at_ns / 4;
  }
  for (StackSample& stack : run.stacks)
    stack.at_ns += static_cast<std::uint64_t>(later.count()) * kMs;
  return run;
}

constexpr std::string_view kCycle = "DEADLOCK  [  1.00 s]  ";

class Hang : public ::testing::Test {
 protected:
  Watched& watched(const lockstep::Run& run, OnHang on_hang) {
    watched_.emplace(run, stall_ns(run) + 300 * kMs, session::WatchOptions{.on_hang = on_hang});
    for (int at = 1; at < 9; ++at)
      watched_->job.asks_whether_it_hangs(seconds(at), watched_->watch);
    watched_->job.is_over_at(seconds(9));
    return *watched_;
  }
  std::optional<Watched> watched_{};
};

TEST_F(Hang, ThatIsCertainEndsTheJob) {
  Watched& run = watched(cycle(), OnHang::kEnd);
  const std::string why = run.follow();
  ASSERT_EQ(why.rfind("deadlock: ", 0), 0U) << why;
  EXPECT_EQ(run.job.elapsed(), seconds(1));
  EXPECT_THAT(run.told(), ElementsAre(std::string(kCycle) + why.substr(10)));
  EXPECT_GT(run.said.size(), 1U) << "with what each rank does";
}

TEST_F(Hang, IsToldOnceWhereTheUserWantsAReport) {
  Watched& run = watched(cycle(), OnHang::kReport);
  EXPECT_EQ(run.follow(), "");
  EXPECT_EQ(run.job.elapsed(), seconds(9));
  ASSERT_EQ(run.told().size(), 1U);
  EXPECT_EQ(run.told().front().rfind(kCycle, 0), 0U);
  EXPECT_THAT(run.acts, IsEmpty());
}

TEST_F(Hang, WaitsAFewSecondsForARankThatStillMoves) {
  Watched& run = watched(cycle_beside_a_rank_that_moves(seconds(4)), OnHang::kEnd);
  run.job.history_changes(milliseconds(3'500), [](lockstep::Run& live) {
    live = cycle_beside_a_rank_that_moves(seconds(6));
  });
  EXPECT_NE(run.follow(), "");
  EXPECT_EQ(run.job.elapsed(), seconds(4));
}

TEST_F(Hang, ARankThatStillMovesMayFreeTheOthers) {
  Watched& run = watched(cycle_beside_a_rank_that_moves(seconds(4)), OnHang::kEnd);
  EXPECT_EQ(run.follow(), "");
  EXPECT_THAT(run.said, IsEmpty());
}

TEST_F(Hang, AWaitWithALimitOfItsOwnIsNotEnded) {
  lockstep::Run run = cycle();
  for (Process& process : run.processes)
    process.collectives.back().timeout_ms = 2'000;
  Watched& limited = watched(run, OnHang::kEnd);
  EXPECT_EQ(limited.follow(), "");
  EXPECT_THAT(limited.said, IsEmpty());
}

TEST_F(Hang, WithoutStacksNothingIsCertain) {
  lockstep::Run run = cycle();
  run.stacks.clear();
  EXPECT_EQ(watched(run, OnHang::kEnd).follow(), "");
}

// --- Before there is a group

/// Rank 1 raised before it had a group, and rank 0 was seen twice in init_process_group.
lockstep::Run failed_before_joining(milliseconds seen_for) {
  lockstep::Run run = make_run({{}, {}});
  run.live = true;
  run.processes.clear();
  run.ends.clear();
  run.ends.push_back(
      {.at_ns = kStart, .role = Role::kRank, .rank = Rank{1}, .pid = 1001, .exit_status = 1});
  StackSample stack = stack_of(run, Rank{0}, {"poll", "c10d::TCPStore::wait"});
  stack.at_ns = kStart;
  const std::string torch = "/py/site-packages/torch/distributed/distributed_c10d.py";
  stack.frames.push_back({.file = torch, .line = 1700, .function = "init_process_group"});
  run.stacks.push_back(stack);
  stack.at_ns += static_cast<std::uint64_t>(seen_for.count()) * kMs;
  run.stacks.push_back(stack);
  return run;
}

class Joining : public ::testing::Test {
 protected:
  Watched& watched(const lockstep::Run& run, bool ranks_are_started = true) {
    watched_.emplace(run, kStart, session::WatchOptions{.ranks_are_started = ranks_are_started});
    watched_->job.has_event(milliseconds(500), Kind::kEnded);
    watched_->job.is_over_at(seconds(9));
    return *watched_;
  }
  std::optional<Watched> watched_{};
};

TEST_F(Joining, WhoFailedBeforeItKeepsTheOthersForEver) {
  Watched& run = watched(failed_before_joining(seconds(3)));
  const std::string why = "rank 1 failed before init_process_group; rank 0 waits in it for it";
  EXPECT_EQ(run.follow(), "deadlock: " + why);
  EXPECT_EQ(run.job.elapsed(), milliseconds(2'500));
  EXPECT_THAT(run.told(), ElementsAre("DEADLOCK  [  2.50 s]  " + why));
}

TEST_F(Joining, IsLookedAtAgainWhereItIsNotCertain) {
  Watched& run = watched(failed_before_joining(seconds(1)));
  run.job.history_changes(seconds(3),
                          [](lockstep::Run& live) { live = failed_before_joining(seconds(3)); });
  EXPECT_NE(run.follow(), "");
  EXPECT_EQ(run.job.elapsed(), milliseconds(4'500));
}

TEST_F(Joining, ALauncherMayStartTheRankAgain) {
  Watched& run = watched(failed_before_joining(seconds(3)), false);
  run.job.loses_a_child(/*others_wait=*/false);
  EXPECT_EQ(run.follow(), "");
}

TEST_F(Joining, ALauncherThatWaitsForAnotherRankStartsNone) {
  Watched& run = watched(failed_before_joining(seconds(3)), false);
  run.job.loses_a_child(/*others_wait=*/true);
  EXPECT_EQ(run.follow(),
            "deadlock: rank 1 failed before init_process_group; rank 0 waits in it for it");
  EXPECT_EQ(run.job.elapsed(), milliseconds(4'500)) << "seen twice";
}

/// Rank 0 was given to two processes of a world of two: one raised in init_process_group, the other
/// waits there.
lockstep::Run given_twice() {
  lockstep::Run run = failed_before_joining(seconds(3));
  run.starts.clear();
  run.ends[0].rank = Rank{0};
  for (const std::int32_t pid : {1000, 1001}) {
    run.starts.push_back({.at_ns = kStart - kMs,
                          .role = Role::kRank,
                          .rank = Rank{0},
                          .pid = pid,
                          .parent = 900,
                          .world_size = 2,
                          .meets_at = "127.0.0.1:29500"});
  }
  Raised raised{.at_ns = kStart, .rank = Rank{0}, .pid = 1001, .text = "EADDRINUSE"};
  raised.raised_at.frames = run.stacks.front().frames;
  run.raised.push_back(raised);
  return run;
}

TEST_F(Joining, OneRankForTwoOfAllThatWereStartedIsForEver) {
  Watched& run = watched(given_twice(), false);
  run.job.shares_a_rank();
  const std::string why =
      "several processes were given one RANK: rank 0 is there 2 times: pid 1000 and pid 1001; "
      "nobody is rank 1";
  EXPECT_EQ(run.follow(), "deadlock: " + why);
  EXPECT_EQ(run.job.elapsed(), milliseconds(2'500));
}

TEST_F(Joining, OneMoreMayYetBeStarted) {
  lockstep::Run three = given_twice();
  for (ProcessStart& start : three.starts)
    start.world_size = 3;
  lockstep::Run elsewhere = given_twice();
  elsewhere.starts[0].meets_at = "127.0.0.1:29501";
  lockstep::Run on_its_way = given_twice();
  on_its_way.stacks.pop_back();
  for (const lockstep::Run& run : {three, elsewhere, on_its_way}) {
    Watched& watch = watched(run, false);
    watch.job.shares_a_rank();
    EXPECT_EQ(watch.follow(), "");
  }
}

TEST_F(Joining, IsOverWhereARankHasAGroup) {
  lockstep::Run run = failed_before_joining(seconds(3));
  run.processes = make_run({{all_reduce("dp", 8)}, {all_reduce("dp", 8)}}).processes;
  EXPECT_EQ(watched(run).follow(), "");
}

}  // namespace
}  // namespace lockstep::testing
