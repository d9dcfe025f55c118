// Whom a job waits for, from what each rank does: fires, stays silent, cannot decide.
#include "harness/diagnose/merge.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep::diagnose {
namespace {

using testing::HasSubstr;

constexpr std::uint64_t kLong = 60'000'000'000, kShort = 500'000'000;

Standing in(std::int32_t rank, const std::string& call, std::uint64_t for_ns = kLong) {
  return {.rank = Rank{rank},
          .pid = 100 + rank,
          .stand = Stand::kInCall,
          .doing = "in " + call,
          .call = call,
          .site = SiteRef{.rank = Rank{rank}, .file = "train.py", .line = 17},
          .for_ns = for_ns};
}

Standing message(std::int32_t rank, std::int32_t peer) {
  Standing one = in(rank, "send to rank " + std::to_string(peer));
  one.stand = Stand::kInMessage;
  one.peer = peer;
  return one;
}

Standing other(std::int32_t rank, Stand stand, const std::string& doing,
               Doing held = Doing::kUnknown) {
  return {.rank = Rank{rank},
          .pid = 100 + rank,
          .stand = stand,
          .doing = doing,
          .held = held,
          .site = SiteRef{.rank = Rank{rank}, .file = "data.py", .line = 5},
          .for_ns = kLong};
}

Standing asleep(std::int32_t rank) { return other(rank, Stand::kHeld, "sleeps", Doing::kTimer); }

TEST(Merge, NamesTheRankThatIsHeldByItself) {
  const Diagnosis said = diagnosis_of({in(0, "all_reduce"), asleep(1), in(2, "all_reduce")});
  ASSERT_EQ(said.outcome, Outcome::kFail);
  EXPECT_EQ(said.finding->code, Code::kStalledOutside);
  EXPECT_EQ(said.finding->culprits, (RankSet{Rank{1}}));
  EXPECT_EQ(said.finding->affected, (RankSet{Rank{0}, Rank{2}}));
  EXPECT_THAT(said.finding->headline, HasSubstr("rank 1 sleeps at data.py:5; ranks 0,2"));
}

TEST(Merge, AccusesNobodyBeforeTenSeconds) {
  const Diagnosis said =
      diagnosis_of({in(0, "all_reduce", kShort), asleep(1), in(2, "all_reduce", kShort)});
  EXPECT_EQ(said.outcome, Outcome::kPass);
  EXPECT_FALSE(said.finding);
}

TEST(Merge, AccusesNobodyWhereNobodyWaits) {
  EXPECT_EQ(diagnosis_of({asleep(0), other(1, Stand::kMoves, "runs")}).outcome, Outcome::kPass);
}

TEST(Merge, CannotDecideWhereTheLastOneRuns) {
  const Diagnosis said =
      diagnosis_of({in(0, "barrier"), other(1, Stand::kMoves, "runs"), in(2, "barrier")});
  EXPECT_EQ(said.outcome, Outcome::kUndecided);
  EXPECT_FALSE(said.finding);
  EXPECT_THAT(said.reason, HasSubstr("rank 1"));
}

TEST(Merge, CannotDecideWhereOneIsOnAnotherHost) {
  const Diagnosis said =
      diagnosis_of({in(0, "barrier"), in(1, "barrier"), other(2, Stand::kNotHere, "is not here")});
  EXPECT_EQ(said.outcome, Outcome::kUndecided);
}

TEST(Merge, AllInOneCallIsToldAndNobodyAccused) {
  const Diagnosis said = diagnosis_of({in(0, "barrier"), in(1, "barrier"), in(2, "barrier")});
  ASSERT_TRUE(said.finding);
  EXPECT_EQ(said.finding->code, Code::kEveryoneInside);
  EXPECT_TRUE(said.finding->culprits.empty());
}

TEST(Merge, WhoHasJustComeToTheCallOfTheOthersIsNoHang) {
  const Diagnosis said =
      diagnosis_of({in(0, "barrier"), in(1, "barrier", kShort), in(2, "barrier")});
  EXPECT_EQ(said.outcome, Outcome::kPass);
}

TEST(Merge, NamesTheOneThatWaitsElsewhere) {
  const Diagnosis said = diagnosis_of({in(0, "all_reduce"), in(1, "barrier"), in(2, "all_reduce")});
  ASSERT_TRUE(said.finding);
  EXPECT_EQ(said.finding->culprits, (RankSet{Rank{1}}));
  EXPECT_THAT(said.finding->headline, HasSubstr("rank 1 in barrier"));
}

TEST(Merge, OfTwoItNamesNeither) {
  const Diagnosis said = diagnosis_of({in(0, "all_reduce"), in(1, "barrier")});
  ASSERT_TRUE(said.finding);
  EXPECT_TRUE(said.finding->culprits.empty());
  EXPECT_THAT(said.finding->headline, HasSubstr("none of them can go on"));
}

TEST(Merge, MessagesInACircle) {
  const Diagnosis said = diagnosis_of({message(0, 1), message(1, 2), message(2, 0)});
  ASSERT_TRUE(said.finding);
  EXPECT_EQ(said.finding->code, Code::kWaitCycle);
  EXPECT_TRUE(said.finding->culprits.empty());
}

TEST(Merge, FollowsAMessageToTheRankThatIsHeld) {
  const Diagnosis said = diagnosis_of({message(0, 1), message(1, 2), asleep(2)});
  ASSERT_TRUE(said.finding);
  EXPECT_EQ(said.finding->culprits, (RankSet{Rank{2}}));
}

TEST(Merge, WhoIsNoMemberOfTheGroupIsNotAccused) {
  Standing first = in(0, "all_reduce of group dp"), second = in(1, "barrier of group dp");
  first.members = second.members = {0, 1};
  const Diagnosis said = diagnosis_of({first, second, asleep(2)});
  ASSERT_TRUE(said.finding);
  EXPECT_TRUE(said.finding->culprits.empty());
}

TEST(Merge, WhoWaitsForALockOfAWaitingRankIsNotAccused) {
  Standing locked = other(1, Stand::kHeld, "waits for a locked file", Doing::kFileLock);
  locked.held_by = {Rank{0}};
  const Diagnosis said = diagnosis_of({in(0, "all_reduce"), locked, asleep(2)});
  ASSERT_TRUE(said.finding);
  EXPECT_EQ(said.finding->culprits, (RankSet{Rank{2}}));
}

TEST(Merge, OneThatDoesNotExitIsNamedWhenTheOthersAreGone) {
  const Diagnosis said = diagnosis_of({other(0, Stand::kEnded, "has no process any more"),
                                       other(1, Stand::kExiting, "does not exit")});
  ASSERT_TRUE(said.finding);
  EXPECT_EQ(said.finding->code, Code::kWillNotExit);
  EXPECT_EQ(said.finding->culprits, (RankSet{Rank{1}}));
}

TEST(Merge, WhoHasEndedIsNamed) {
  const Diagnosis said = diagnosis_of(
      {in(0, "barrier"), other(1, Stand::kEnded, "has no process any more"), in(2, "barrier")});
  ASSERT_TRUE(said.finding);
  EXPECT_EQ(said.finding->code, Code::kLeftEarly);
}

}  // namespace
}  // namespace lockstep::diagnose
