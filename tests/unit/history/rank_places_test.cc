// Goal: of several processes that say that they are one rank, the right one is it. Method: typed
// runs, each with its twin; settled twice, as a run that grows is.
#include "harness/history/rank_places.h"

#include <gtest/gtest.h>

#include <vector>

namespace lockstep {
namespace {

constexpr std::uint64_t kSecond = 1'000'000'000;
constexpr Rank kRank{1};

/// One run; times in seconds.
class Claims {
 public:
  Claims& started(std::int32_t pid, std::uint64_t at) {
    run_.starts.push_back({.at_ns = at * kSecond, .role = Role::kRank, .rank = kRank, .pid = pid});
    return *this;
  }
  Claims& ended(std::int32_t pid, std::uint64_t at, std::int32_t status) {
    run_.ends.push_back({.at_ns = at * kSecond,
                         .role = Role::kRank,
                         .rank = kRank,
                         .pid = pid,
                         .exit_status = status});
    return *this;
  }
  Claims& in_a_group(std::int32_t pid, std::uint64_t at, std::int32_t world_size = 2,
                     Rank rank = kRank, std::int32_t parent_pid = 0) {
    Process process;
    process.parent_pid = parent_pid;
    process.pid = pid;
    process.rank = rank;
    process.world_size = world_size;
    process.opened_ns = at * kSecond;
    process.groups.emplace_back();
    run_.processes.push_back(process);
    return *this;
  }
  /// The last end was by a signal that we sent.
  Claims& by_us() {
    run_.ends.back().exit_status.reset();
    run_.ends.back().signal = run_.ends.back().our_signal = 15;
    return *this;
  }
  Run settled() {
    history::settle_places(run_);
    history::settle_places(run_);
    return run_;
  }

 private:
  Run run_{};
};

std::vector<std::int32_t> ranks(const Run& run) {
  std::vector<std::int32_t> pids;
  for (const Process& process : run.processes) {
    if (process.rank)
      pids.push_back(process.pid);
  }
  return pids;
}

std::vector<std::int32_t> ends(const Run& run) {
  std::vector<std::int32_t> pids;
  for (const ProcessEnd& end : run.ends) {
    if (end.role == Role::kRank)
      pids.push_back(end.pid);
  }
  return pids;
}

using Pids = std::vector<std::int32_t>;

TEST(RankPlaces, AWrapperIsNotTheRankThatItStarts) {
  Claims claims;
  claims.started(10, 1).in_a_group(11, 3).started(11, 3).ended(11, 5, 1).ended(10, 6, 0);
  EXPECT_EQ(ends(claims.settled()), Pids{11});
  // Whatever it is that has no group, if nothing that has one is there, it is the rank.
  EXPECT_EQ(ends(Claims().started(10, 1).ended(10, 6, 0).settled()), Pids{10});
}

TEST(RankPlaces, AWrapperThatFailsByItselfIsHeard) {
  Claims claims;
  claims.started(10, 1).in_a_group(11, 3).started(11, 3).ended(11, 5, 0).ended(10, 6, 3);
  EXPECT_EQ(ends(claims.settled()), (Pids{11, 10}));
}

TEST(RankPlaces, TheLastJobOfACommandCounts) {
  Claims claims;
  claims.started(10, 1).in_a_group(11, 3).started(11, 3).ended(11, 5, 0);
  EXPECT_TRUE(history::wrapper_lives(claims.settled(), kRank, 6 * kSecond));
  claims.in_a_group(12, 8).started(12, 8).ended(12, 9, 1).ended(10, 10, 0);
  EXPECT_EQ(ends(claims.settled()), Pids{12});
  EXPECT_FALSE(history::wrapper_lives(claims.settled(), kRank, 11 * kSecond));
}

TEST(RankPlaces, AnAttemptThatWasFollowedIsOver) {
  Claims claims;
  claims.in_a_group(11, 3).started(11, 3).ended(11, 5, 1);
  EXPECT_EQ(ends(claims.settled()), Pids{11});
  claims.in_a_group(12, 8).started(12, 8).ended(12, 9, 0);
  EXPECT_EQ(ends(claims.settled()), Pids{12});
}

TEST(RankPlaces, ASideCarDoesNotTakeThePlace) {
  Claims claims;
  claims.in_a_group(11, 3).started(11, 3).in_a_group(20, 6).started(20, 6);
  EXPECT_EQ(ranks(claims.settled()), Pids{11});
  claims.ended(20, 7, 1);
  EXPECT_EQ(ends(claims.settled()), Pids{});
  claims.ended(11, 8, 0);
  EXPECT_EQ(ends(claims.settled()), Pids{11});
}

TEST(RankPlaces, ASideCarThatStartsAsTheRankEndsDoesNotTakeThePlace) {
  const auto last = [](std::int32_t parent_pid) {
    Claims claims;
    claims.in_a_group(11, 3).started(11, 3).in_a_group(20, 8, 2, kRank, parent_pid).started(20, 8);
    return claims.ended(11, 8, 1);  // On record somewhat later than it was.
  };
  EXPECT_EQ(ranks(last(1).settled()), (Pids{11, 20})) << "another attempt";
  EXPECT_EQ(ranks(last(11).settled()), Pids{11}) << "its child, and it was there";
  EXPECT_EQ(ranks(last(1).by_us().settled()), Pids{11}) << "it was there to be ended";
  EXPECT_EQ(ranks(last(1).by_us().in_a_group(21, 9).settled()), Pids{11}) << "nothing follows";
}

TEST(RankPlaces, AWorldOfItsOwnAloneIsNoClaim) {
  for (const std::uint64_t at : {2U, 4U}) {
    Claims claims;
    claims.in_a_group(20, at, 1).started(20, at).in_a_group(11, 3).started(11, 3);
    EXPECT_EQ(ranks(claims.settled()), Pids{11});
  }
}

TEST(RankPlaces, OfWorldsThatFormAtOneTimeNobodyIsTakenForTheOther) {
  const auto mixed = [](std::uint64_t later) {
    Claims claims;
    return claims.in_a_group(10, 3, 2, Rank{0})
        .in_a_group(21, 3)
        .started(21, 3)
        .in_a_group(11, later)
        .settled();
  };
  EXPECT_EQ(ranks(mixed(4)), Pids{10});
  EXPECT_EQ(ranks(mixed(6)), (Pids{10, 21}));
}

TEST(RankPlaces, WhoseEndIsNotOnRecordMayHaveEnded) {
  Claims claims;
  claims.in_a_group(11, 3).in_a_group(12, 4).started(12, 4);
  EXPECT_EQ(ranks(claims.settled()), (Pids{11, 12}));
}

}  // namespace
}  // namespace lockstep
