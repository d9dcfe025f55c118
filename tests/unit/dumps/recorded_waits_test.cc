#include "checkers/hang/recorded_waits.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "checkers/dumps.h"
#include "harness/history/flight_recorder.h"
#include "tests/unit/dumps/typed_dumps.h"

namespace lockstep::checkers {
namespace {

using testing::begun;
using testing::calls;
using testing::DumpCall;
using testing::DumpFolder;
using ::testing::HasSubstr;
using testing::queued;
using testing::then;

Judgement judged(const DumpFolder& folder) {
  const Result<lockstep::Run> run = history::open_dumps(folder.path());
  EXPECT_TRUE(run.has_value());
  return judge_dumps(*run);
}

/// The one finding.
Finding found(const DumpFolder& folder) {
  const Judgement judgement = judged(folder);
  EXPECT_EQ(judgement.findings.size(), 1U);
  return judgement.findings.empty() ? Finding{} : judgement.findings.front();
}

bool is_undecided(const Judgement& judgement) {
  return std::any_of(judgement.verdicts.begin(), judgement.verdicts.end(), [](const auto& verdict) {
    return verdict.name == "recorded-waits" && verdict.outcome == Outcome::kUndecided;
  });
}

TEST(RecordedWaits, NamesTheRankThatIssuedLess) {
  DumpFolder folder(4);
  for (const int rank : {0, 1, 3})
    folder.dump(rank, then(calls(40), {begun({.seq = 41})}));
  folder.dump(2, calls(40));
  const Finding finding = found(folder);
  EXPECT_EQ(finding.code, Code::kAbsentRank);
  EXPECT_EQ(finding.culprits, RankSet{Rank{2}});
  EXPECT_EQ(finding.seq, 41U);
}

TEST(RecordedWaits, NamesTheFewThatIssuedLess) {
  DumpFolder folder(6);
  for (const int rank : {0, 1, 3, 5})
    folder.dump(rank, then(calls(40), {begun({.seq = 41})}));
  for (const int rank : {2, 4})
    folder.dump(rank, calls(40));
  const Finding finding = found(folder);
  EXPECT_EQ(finding.code, Code::kAbsentRank);
  EXPECT_EQ(finding.culprits, (RankSet{Rank{2}, Rank{4}}));
}

/// Of the two in each group either may be the one who should have come; both wait for rank 2.
TEST(RecordedWaits, NamesWhomSeveralWaitForInPairs) {
  DumpFolder folder(3);
  folder.group("1", "[0, 2]");
  folder.group("2", "[1, 2]");
  folder.dump(0, then(calls(5), {begun({.seq = 1, .group = "1"})}));
  folder.dump(2, calls(5));
  folder.dump(1, calls(5));
  EXPECT_TRUE(found(folder).culprits.empty());
  folder.dump(1, then(calls(5), {begun({.seq = 1, .group = "2"})}));
  EXPECT_EQ(found(folder).culprits, RankSet{Rank{2}});
}

TEST(RecordedWaits, StaysSilentWhereAllIsDone) {
  DumpFolder folder(4);
  for (const int rank : {0, 1, 2, 3})
    folder.dump(rank, calls(rank == 2 ? 40 : 41));
  EXPECT_TRUE(judged(folder).findings.empty());
}

TEST(RecordedWaits, StaysSilentWhereTheJobWentOn) {
  DumpFolder folder(4);
  for (const int rank : {0, 1, 3})
    folder.dump(rank, then(calls(40), {begun({.seq = 41})}), 0);
  folder.dump(2, calls(40), 0);
  const Judgement judgement = judged(folder);
  EXPECT_TRUE(judgement.findings.empty());
  EXPECT_FALSE(is_undecided(judgement));
}

TEST(RecordedWaits, CannotDecideWhereAllAreInside) {
  DumpFolder folder(3);
  for (const int rank : {0, 1, 2})
    folder.dump(rank, then(calls(40), {begun({.seq = 41})}), 60);
  const Judgement judgement = judged(folder);
  EXPECT_TRUE(judgement.findings.empty());
  EXPECT_TRUE(is_undecided(judgement));
}

/// The clock of the file system is ahead of that of rank 3's host alone.
TEST(RecordedWaits, StaysSilentWhereClocksDiffer) {
  DumpFolder folder(4);
  for (const int rank : {0, 1, 3})
    folder.dump(rank, then(calls(40), {begun({.seq = 41})}), rank == 3 ? 4 : 0);
  folder.dump(2, calls(40), 0);
  const Judgement judgement = judged(folder);
  EXPECT_TRUE(judgement.findings.empty());
  EXPECT_FALSE(is_undecided(judgement));
}

TEST(RecordedWaits, StaysSilentWhereFilesAreOlderThanTheirCalls) {
  DumpFolder folder(4);
  for (const int rank : {0, 1, 3})
    folder.dump(rank, then(calls(40), {begun({.seq = 41})}), -3);
  folder.dump(2, calls(40), -3);
  EXPECT_TRUE(judged(folder).findings.empty());
}

TEST(RecordedWaits, CannotDecideWhetherASlowRankComes) {
  DumpFolder folder(4);
  for (const int rank : {0, 1, 3})
    folder.dump(rank, then(calls(40), {begun({.seq = 41})}), 10);
  folder.dump(2, calls(40), 10);
  const Judgement judgement = judged(folder);
  EXPECT_TRUE(judgement.findings.empty());
  EXPECT_TRUE(is_undecided(judgement));
}

/// Rank 3 has no dump, and others wait for it; what does not match explains that, too.
TEST(RecordedWaits, WhatDoesNotMatchGoesBeforeWhoIsUnseen) {
  DumpFolder folder(5);
  folder.group("1", "[0, 3]");
  folder.group("2", "[1, 2, 4]");
  folder.dump(0, then(calls(5), {begun({.seq = 1, .group = "1"})}));
  for (const int rank : {1, 2, 4})
    folder.dump(rank,
                then(calls(5), {begun({.seq = 1, .numel = rank == 4 ? 9 : 8, .group = "2"})}));
  const Finding finding = found(folder);
  EXPECT_EQ(finding.code, Code::kDifferentSize);
  EXPECT_EQ(finding.culprits, RankSet{Rank{4}});
}

/// Rank 1 waits for a message of rank 3, which is the only rank that is in nothing.
TEST(RecordedWaits, NamesTheOnlyIdleRank) {
  DumpFolder folder(4);
  folder.dump(1, then(calls(5), {begun({.name = "nccl:recv 1<-3", .seq = 3})}));
  for (const int rank : {0, 2})
    folder.dump(rank, then(calls(5), {begun({.name = "nccl:recv 9<-1", .seq = 3})}));
  folder.dump(3, calls(5));
  const Finding finding = found(folder);
  EXPECT_EQ(finding.code, Code::kP2pUnmatched);
  EXPECT_EQ(finding.culprits, RankSet{Rank{3}});
}

/// Three rings of three ranks, each after a turn; in the second one rank 4 sends to rank 3 instead
/// of rank 5.
void fill_rings(const DumpFolder& folder, bool odd) {
  for (int rank = 0; rank < 9; ++rank) {
    const std::string group = std::to_string(1 + rank / 3);
    const int me = rank % 3, next = (me + 1) % 3, last = (me + 2) % 3;
    const auto turn = [&](int seq, int to) {
      return std::vector<DumpCall>{
          {.name = fmt::format("nccl:send {}->{}", me, to), .seq = seq, .group = group},
          {.name = fmt::format("nccl:recv {}<-{}", me, last), .seq = seq, .group = group}};
    };
    std::vector<DumpCall> all = turn(1, next);
    if (odd && rank / 3 == 1) {
      const std::vector<DumpCall> second = turn(2, rank == 4 ? 0 : next);
      // Rank 5 gets nothing, and rank 4's message is not taken.
      all.push_back(rank == 4 ? begun(second[0]) : second[0]);
      all.push_back(rank == 5 ? begun(second[1]) : second[1]);
    }
    if (!(odd && (rank == 4 || rank == 5)))
      all.push_back(begun({.seq = 1}));
    folder.dump(rank, all);
  }
}

DumpFolder& with_rings(DumpFolder& folder) {
  folder.group("1", "[0, 1, 2]", "cp");
  folder.group("2", "[3, 4, 5]", "cp");
  folder.group("3", "[6, 7, 8]", "cp");
  return folder;
}

TEST(RecordedWaits, NamesTheRankThatSendsToAnother) {
  DumpFolder folder(9);
  fill_rings(with_rings(folder), true);
  const Finding finding = found(folder);
  EXPECT_EQ(finding.code, Code::kP2pUnmatched);
  EXPECT_EQ(finding.culprits, RankSet{Rank{4}});
}

TEST(RecordedWaits, SendsNobodyAstrayWhereAllAreInside) {
  DumpFolder folder(9);
  fill_rings(with_rings(folder), false);
  const Finding finding = found(folder);
  EXPECT_EQ(finding.code, Code::kEveryoneInside);
  EXPECT_TRUE(finding.culprits.empty());
}

TEST(RecordedWaits, NamesTheOddSizeOfAnExchangeThatIsEven) {
  DumpFolder folder(4);
  for (const int rank : {0, 1, 2, 3})
    folder.dump(rank, {begun({.name = "nccl:all_to_all", .numel = rank == 2 ? 12 : 8})});
  const Finding finding = found(folder);
  EXPECT_EQ(finding.code, Code::kDifferentSize);
  EXPECT_EQ(finding.culprits, RankSet{Rank{2}});
}

/// Rank 3 belongs to another group, whose members wait for it, and has no dump.
TEST(RecordedWaits, NamesTheOddSizeThoughARankIsUnseen) {
  DumpFolder folder(5);
  folder.group("1", "[0, 1, 2]");
  folder.group("2", "[3, 4]");
  for (const int rank : {0, 1, 2})
    folder.dump(rank,
                {begun({.name = "nccl:all_to_all", .numel = rank == 2 ? 12 : 8, .group = "1"})});
  folder.dump(4, {begun({.seq = 1, .group = "2"})});
  EXPECT_EQ(found(folder).culprits, RankSet{Rank{2}});
}

/// A recorder that does not tell when a device begins: rank 3 issued the two calls in another
/// order.
TEST(RecordedWaits, NamesWhoWentPastWhereAllHaveIssuedBoth) {
  DumpFolder folder(4);
  folder.group("1", "[0, 1, 2, 3]");
  const DumpCall first = queued({.name = "nccl2:all_reduce", .seq = 1});
  const DumpCall second = queued({.name = "nccl2:all_reduce", .seq = 1, .group = "1"});
  for (const int rank : {0, 1, 2})
    folder.dump(rank, {first, second});
  folder.dump(3, {second, first});
  const Finding finding = found(folder);
  EXPECT_EQ(finding.code, Code::kWaitCycle);
  EXPECT_EQ(finding.culprits, RankSet{Rank{3}});
}

TEST(RecordedWaits, OfAnUnevenExchangeNobodyIsAtFault) {
  DumpFolder folder(4);
  for (const int rank : {0, 1, 2, 3})
    folder.dump(rank, {begun({.name = "nccl:all_to_all", .numel = 8 + rank})});
  EXPECT_TRUE(found(folder).culprits.empty());
}

TEST(RecordedWaits, TellsThatAllWereInsideToTheLimit) {
  DumpFolder folder(3);
  for (const int rank : {0, 1, 2})
    folder.dump(rank, then(calls(40), {begun({.seq = 41})}), 601);
  const Finding finding = found(folder);
  EXPECT_EQ(finding.code, Code::kEveryoneInside);
  EXPECT_TRUE(finding.culprits.empty());
}

TEST(RecordedWaits, NamesTheDeviceThatHasNotBegun) {
  DumpFolder folder(4);
  for (const int rank : {0, 1, 3})
    folder.dump(rank, then(calls(40), {begun({.seq = 41})}));
  folder.dump(2, then(calls(40), {queued({.seq = 41})}));
  const Finding finding = found(folder);
  EXPECT_EQ(finding.code, Code::kEveryoneInside);
  EXPECT_EQ(finding.culprits, RankSet{Rank{2}});
  EXPECT_THAT(finding.headline, HasSubstr("device of rank 2 has not begun it"));
}

TEST(RecordedWaits, NamesNobodyWithoutADump) {
  DumpFolder folder(4);
  for (const int rank : {0, 1, 3})
    folder.dump(rank, then(calls(40), {begun({.seq = 41})}));
  const Finding finding = found(folder);
  EXPECT_EQ(finding.code, Code::kAbsentRank);
  EXPECT_TRUE(finding.culprits.empty());
  EXPECT_THAT(finding.headline, HasSubstr("of rank 2, which belongs to it, there is no dump"));
}

/// 0-3 and 4-7 wait in groups of their own; rank 5 is nowhere, and rank 1 waits for it in a third.
TEST(RecordedWaits, ExplainsTheOtherGroupsByOne) {
  DumpFolder folder(8);
  folder.group("1", "[0, 1, 2, 3]");
  folder.group("2", "[4, 5, 6, 7]");
  folder.group("3", "[1, 5]");
  const DumpCall first{.seq = 1, .group = "1"}, second{.seq = 1, .group = "2"},
      third{.seq = 1, .group = "3"};
  for (const int rank : {0, 2, 3})
    folder.dump(rank, then(calls(5), {begun(first)}));
  for (const int rank : {4, 6, 7})
    folder.dump(rank, then(calls(5), {begun(second)}));
  folder.dump(1, then(calls(5), {begun(third)}));
  folder.dump(5, calls(5));
  const Finding finding = found(folder);
  EXPECT_EQ(finding.culprits, RankSet{Rank{5}});
  EXPECT_EQ(finding.group, "2");
  EXPECT_EQ(finding.consequences, 2U);
}

/// Ranks 0, 2 and 3 are in a call of the world, and rank 1 is in one of another group.
void fill_circle(const DumpFolder& folder) {
  folder.dump(1, then(calls(5), {begun({.seq = 1, .group = "1"})}));
  for (const int rank : {0, 2, 3})
    folder.dump(rank, then(calls(5), {begun({.seq = 6})}));
}

TEST(RecordedWaits, TellsACircle) {
  DumpFolder folder(4);
  folder.group("1", "[0, 1, 2]");
  fill_circle(folder);
  const Finding finding = found(folder);
  EXPECT_EQ(finding.code, Code::kWaitCycle);
  EXPECT_EQ(finding.culprits, RankSet{Rank{1}});
}

/// Either rank 1 called too early, or rank 0 left the call of the two out.
TEST(RecordedWaits, OfACircleThroughAPairNobodyIsAtFault) {
  DumpFolder folder(4);
  folder.group("1", "[0, 1]");
  fill_circle(folder);
  const Finding finding = found(folder);
  EXPECT_EQ(finding.code, Code::kWaitCycle);
  EXPECT_TRUE(finding.culprits.empty());
}

TEST(RecordedWaits, OfTwoNobodyIsAtFault) {
  DumpFolder folder(2);
  folder.dump(0, then(calls(5), {begun({.name = "nccl:send 0->1", .seq = 3})}));
  folder.dump(1, calls(5));
  const Finding finding = found(folder);
  EXPECT_EQ(finding.code, Code::kP2pUnmatched);
  EXPECT_TRUE(finding.culprits.empty());
}

TEST(RecordedWaits, KnowsACallOfGlooAsDoneWhenItIsRetired) {
  DumpFolder folder(2);
  const DumpCall done{.name = "gloo:all_reduce", .seq = 1, .state = "scheduled", .retired = true};
  for (const int rank : {0, 1})
    folder.dump(rank, {done});
  EXPECT_TRUE(judged(folder).findings.empty());
}

TEST(RecordedOrder, NamesTheRankWhoseCallDiffersFarBeforeTheEnd) {
  DumpFolder folder(4);
  for (const int rank : {0, 1, 2, 3}) {
    std::vector<DumpCall> all = calls(1000);
    if (rank == 3)
      all[299].dtype = "BFloat16";
    folder.dump(rank, all);
  }
  const Finding finding = found(folder);
  EXPECT_EQ(finding.code, Code::kDifferentDtype);
  EXPECT_EQ(finding.culprits, RankSet{Rank{3}});
  EXPECT_EQ(finding.seq, 300U);
}

TEST(RecordedOrder, NamesTheRankThatDiffersWhereRingsAreFull) {
  DumpFolder folder(4);
  for (const int rank : {0, 1, 2, 3}) {
    std::vector<DumpCall> all = then(calls(900), {begun({.seq = 901})});
    all.erase(all.begin(), all.begin() + 500 + 7 * rank);
    if (rank == 1)
      all.back().numel = 9;
    folder.dump(rank, all);
  }
  const Finding finding = found(folder);
  EXPECT_EQ(finding.code, Code::kDifferentSize);
  EXPECT_EQ(finding.culprits, RankSet{Rank{1}});
}

/// All have lost the calls before 303, and the last 24 are told as they are.
TEST(RecordedOrder, NamesTheRankWhoseCallDiffersAtTheEdgeOfItsRing) {
  DumpFolder folder(4);
  for (const int rank : {0, 1, 2, 3}) {
    std::vector<DumpCall> all = calls(340);
    all[303].dtype = rank == 3 ? "BFloat16" : "Float";
    all.erase(all.begin(), all.begin() + 302);
    folder.dump(rank, all);
  }
  const Finding finding = found(folder);
  EXPECT_EQ(finding.code, Code::kDifferentDtype);
  EXPECT_EQ(finding.culprits, RankSet{Rank{3}});
  EXPECT_EQ(finding.seq, 304U);
}

TEST(RecordedOrder, WhatCompletedEverywhereWasNoOtherOperation) {
  DumpFolder folder(2);
  folder.dump(0, then(calls(5), {{.name = "nccl:broadcast", .seq = 6}, {.seq = 7}}));
  folder.dump(1, calls(7));
  EXPECT_TRUE(judged(folder).findings.empty());
}

}  // namespace
}  // namespace lockstep::checkers
