// Goal: evidence is data: its kind, its ranks, its call and its line say what its words say.
// Method: one typed run for a checker of each folder, and what lacks evidence.
#include <gtest/gtest.h>

#include <algorithm>

#include "checkers/exit/rank_failed.h"
#include "checkers/hang/deadlock.h"
#include "checkers/order/collective_order.h"
#include "checkers/run/history_complete.h"
#include "checkers/worlds.h"
#include "tests/support/typed_run.h"

namespace lockstep::testing {
namespace {

/// The first line of this kind; an empty one where there is none.
Evidence first(const Finding& finding, EvidenceKind kind) {
  const auto line = std::find_if(finding.evidence.begin(), finding.evidence.end(),
                                 [&](const Evidence& each) { return each.kind == kind; });
  EXPECT_NE(line, finding.evidence.end()) << name_of(kind);
  return line == finding.evidence.end() ? Evidence{} : *line;
}

void expect_call(const Evidence& line, const std::string& group, std::uint64_t seq) {
  ASSERT_TRUE(line.call) << line.text;
  EXPECT_EQ(line.call->group, group);
  EXPECT_EQ(line.call->seq, seq);
}

void expect_line(const Evidence& line, const std::string& file, std::int32_t number) {
  ASSERT_TRUE(line.site) << line.text;
  EXPECT_EQ(line.site->file, file);
  EXPECT_EQ(line.site->line, number);
}

/// Ranks 0 and 2 wait in the last call of a group, and rank 1 has ended before it.
lockstep::Run left_alone() {
  const Row step = times(2, {all_reduce("dp", 8).at("t.cc", 5)});
  const Row waits = step + Row{all_reduce("dp", 8).at("t.cc", 7).pending()};
  lockstep::Run run = make_run({waits, step, waits});
  ends_with_signal(run, Rank{1}, 9, stall_ns(run) - 50 * kMs);
  hang(run);
  return run;
}

TEST(EvidenceTest, ADeadlockTellsWhoWaitsInWhichCallAndWhoEnded) {
  const Verdict verdict = checkers::Deadlock().check(left_alone());
  ASSERT_EQ(verdict.findings.size(), 1U) << verdict.reason;
  const Evidence wait = first(verdict.findings[0], EvidenceKind::kWait);
  EXPECT_EQ(wait.ranks, (RankSet{Rank{0}, Rank{2}}));
  expect_call(wait, "dp", 2);
  expect_line(wait, "t.cc", 7);
  EXPECT_EQ(wait.text, "ranks 0,2: in all_reduce dp#2 at t.cc:7");
  const Evidence end = first(verdict.findings[0], EvidenceKind::kEnd);
  EXPECT_EQ(end.ranks, RankSet{Rank{1}});
  EXPECT_FALSE(end.call || end.site);
  EXPECT_EQ(end.text, "rank 1: has ended");
}

TEST(EvidenceTest, AMismatchTellsEachCallAtItsPlace) {
  const Call sum = all_reduce("dp", 8).at("t.cc", 5);
  const Row same{sum, sum}, other{sum, broadcast("dp", 8).at("t.cc", 6)};
  const Verdict verdict = checkers::CollectiveOrder().check(make_run({same, other, same}));
  ASSERT_EQ(verdict.findings.size(), 1U) << verdict.reason;
  const std::vector<Evidence>& lines = verdict.findings[0].evidence;
  ASSERT_EQ(lines.size(), 2U);
  EXPECT_EQ(lines[0].ranks, (RankSet{Rank{0}, Rank{2}}));
  EXPECT_EQ(lines[1].ranks, RankSet{Rank{1}});
  EXPECT_EQ(lines[1].site->role, "culprit");
  for (const Evidence& line : lines) {
    EXPECT_EQ(line.kind, EvidenceKind::kCall);
    expect_call(line, "dp", 1);
  }
  expect_line(lines[0], "t.cc", 5);
  expect_line(lines[1], "t.cc", 6);
}

TEST(EvidenceTest, AFailureTellsWhatFollowedAndWhereItWas) {
  const Row row{all_reduce("dp", 8).at("t.cc", 5), all_reduce("dp", 8).at("t.cc", 9)};
  lockstep::Run run = make_run({row, row});
  raises(run, Rank{1}, "ValueError: no label", last_event(run) + kMs);
  ends_with_status(run, Rank{0}, 3, last_event(run) + 20 * kMs);
  const Verdict verdict = checkers::RankFailed().check(run);
  ASSERT_EQ(verdict.findings.size(), 1U) << verdict.reason;
  EXPECT_EQ(verdict.findings[0].culprits, RankSet{Rank{1}});
  const Evidence end = first(verdict.findings[0], EvidenceKind::kEnd);
  EXPECT_EQ(end.ranks, RankSet{Rank{0}});
  EXPECT_EQ(end.text, "rank 0 exited with status 3 after it");
  const Evidence call = first(verdict.findings[0], EvidenceKind::kCall);
  EXPECT_EQ(call.ranks, RankSet{Rank{1}});
  expect_call(call, "dp", 1);
  expect_line(call, "t.cc", 9);
  EXPECT_EQ(call.text, "rank 1 failed after all_reduce #1 at t.cc:9");
}

TEST(EvidenceTest, MessagesHaveNoPlaceInTheOrderOfTheirGroup) {
  lockstep::Run run =
      make_run({{all_reduce("dp", 8), send("dp", 1, 8)}, {all_reduce("dp", 8), recv("dp", 0, 8)}});
  const Process& process = process_of(run, Rank{0});
  expect_call({.call = place_of(process, process.collectives.front())}, "dp", 0);
  EXPECT_FALSE(place_of(process, process.collectives.back()));
}

TEST(EvidenceTest, WhatIsLackingIsNoMatterOfWords) {
  lockstep::Run run = left_alone();
  const auto lacks = [](const lockstep::Run& of) {
    return checkers::HistoryComplete().check(of).lacks;
  };
  run.processes[1].dropped = 5;
  EXPECT_EQ(lacks(run), Code::kEventsDropped);
  run.live = true;
  EXPECT_FALSE(lacks(run));
  Verdict verdict{.reason = "LS901: says who?"};
  EXPECT_FALSE(verdict.lacks);
  EXPECT_EQ(verdict.because({.text = "torn", .lacks = Code::kHistoryIncomplete}).lacks,
            Code::kHistoryIncomplete);
  EXPECT_FALSE(verdict.because({}).lacks);
}

TEST(EvidenceTest, WhatOneOfSeveralWorldsLacksIsLacking) {
  World whole{.run = left_alone()}, torn{.run = left_alone()};
  torn.run.journal_complete = false;
  checkers::Judgement one, other;
  one.verdicts.push_back(checkers::HistoryComplete().check(whole.run));
  other.verdicts.push_back(checkers::HistoryComplete().check(torn.run));
  const checkers::Judgement all = checkers::together({whole, torn}, {one, other});
  EXPECT_EQ(all.verdicts.at(0).lacks, Code::kHistoryIncomplete);
  EXPECT_EQ(all.verdicts.at(0).reason,
            "phase 2 of 2: LS901: the journal of the run has a gap or no end");
}

}  // namespace
}  // namespace lockstep::testing
