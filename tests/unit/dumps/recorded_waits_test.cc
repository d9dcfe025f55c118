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

TEST(RecordedWaits, TellsACircle) {
  DumpFolder folder(4);
  folder.group("1", "[0, 1]");
  folder.dump(0, then(calls(5), {begun({.seq = 6})}));
  folder.dump(1, then(calls(5), {begun({.seq = 1, .group = "1"})}));
  for (const int rank : {2, 3})
    folder.dump(rank, then(calls(5), {begun({.seq = 6})}));
  const Finding finding = found(folder);
  EXPECT_EQ(finding.code, Code::kWaitCycle);
  EXPECT_EQ(finding.culprits, RankSet{Rank{1}});
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

TEST(RecordedOrder, WhatCompletedEverywhereWasNoOtherOperation) {
  DumpFolder folder(2);
  folder.dump(0, then(calls(5), {{.name = "nccl:broadcast", .seq = 6}, {.seq = 7}}));
  folder.dump(1, calls(7));
  EXPECT_TRUE(judged(folder).findings.empty());
}

}  // namespace
}  // namespace lockstep::checkers
