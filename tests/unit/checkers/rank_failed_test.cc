// Goal: the rank that died first, or left while it was needed; never one that only followed, never
// our own doing.
#include "checkers/exit/rank_failed.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "checkers/run/expected_marks.h"
#include "checkers/run/history_complete.h"
#include "tests/support/typed_run.h"

namespace lockstep::testing {
namespace {

Verdict check(const lockstep::Run& run) { return checkers::RankFailed().check(run); }

lockstep::Run healthy() {
  const Row row = times(3, {all_reduce("dp", 8).at("t.cc", 5)});
  lockstep::Run run = make_run({row, row, row});
  converse(run);
  return run;
}

void fail(Request& request, const std::string& text, std::uint64_t at_ns) {
  request.outcome = "failed";
  request.text = text;
  request.answered_ns = at_ns;
}

TEST(ProcessEnd, PassesCleanEnds) {
  EXPECT_EQ(check(healthy()).outcome, Outcome::kPass) << check(healthy()).reason;
}

TEST(ProcessEnd, CannotDecideWithoutAnEndOrAWholeJournal) {
  lockstep::Run run = healthy();
  run.ends.pop_back();
  EXPECT_EQ(check(run).outcome, Outcome::kUndecided);
  run = healthy();
  run.journal_complete = false;
  EXPECT_EQ(check(run).outcome, Outcome::kUndecided);
}

TEST(ProcessEnd, KilledFirstThenTheOthersLoseTheConnection) {
  lockstep::Run run = healthy();
  ends_with_signal(run, Rank{2}, 9, kStart + 30 * kMs);
  // The peers' failure may be noticed before the death is.
  fail(ask(run, Rank{0}, "step", kStart, std::nullopt),
       "[gloo/transport] Connection closed by peer", kStart + 29 * kMs);
  ends_with_signal(run, Rank{1}, 6, kStart + 25 * kMs);
  const Verdict verdict = check(run);
  ASSERT_EQ(verdict.findings.size(), 1U);
  EXPECT_EQ(verdict.findings[0].code, Code::kRankDied);
  EXPECT_EQ(verdict.findings[0].culprits, RankSet{Rank{2}});
  EXPECT_EQ(verdict.findings[0].consequences, 2U);
  EXPECT_EQ(verdict.findings[0].headline, "rank 2 was killed by SIGKILL");
}

TEST(ProcessEnd, AnExceptionNamesItsLine) {
  lockstep::Run run = healthy();
  Request& request = ask(run, Rank{1}, "step", kStart, std::nullopt);
  fail(request, "bad batch\nwith a long trace", kStart + 5 * kMs);
  request.raised_at.frames = {{"/usr/lib/libstdc++.so.6", 1, "", 0, "__cxa_throw"},
                              {"/app/train", 9, "train.cc", 67, "load"}};
  const Finding finding = check(run).findings.at(0);
  EXPECT_EQ(finding.code, Code::kRankDied);
  EXPECT_EQ(finding.culprits, RankSet{Rank{1}});
  EXPECT_EQ(finding.headline, "rank 1 raised: bad batch at train.cc:67");
  ASSERT_EQ(finding.sites.size(), 1U);
  EXPECT_EQ(finding.sites[0].role, "raised");
  EXPECT_EQ(finding.sites[0].line, 67);
}

TEST(ProcessEnd, OneMistakeOnAllRanksNamesNobody) {
  lockstep::Run run = healthy();
  for (const Rank rank : RankSet::all(3))
    fail(ask(run, rank, "step", kStart, std::nullopt), "no such file", kStart + 5 * kMs);
  const Finding finding = check(run).findings.at(0);
  EXPECT_TRUE(finding.culprits.empty());
  EXPECT_EQ(finding.affected.size(), 3U);
}

TEST(ProcessEnd, ALostConnectionAloneNamesNobody) {
  lockstep::Run run = healthy();
  fail(ask(run, Rank{0}, "step", kStart, std::nullopt), "Connection reset by peer",
       kStart + 5 * kMs);
  const Finding finding = check(run).findings.at(0);
  EXPECT_TRUE(finding.culprits.empty());
}

TEST(ProcessEnd, AStatusIsAnEnd) {
  lockstep::Run run = healthy();
  ends_with_status(run, Rank{1}, 3, kStart + 30 * kMs);
  for (ProcessEnd& end : run.ends)
    end.last_line = "no such configuration: small.yaml";
  const Finding finding = check(run).findings.at(0);
  EXPECT_EQ(finding.headline, "rank 1 exited with status 3");
  EXPECT_EQ(finding.evidence.at(0).text, "it printed last: no such configuration: small.yaml");
}

TEST(ProcessEnd, OurOwnSignalsNeverCount) {
  lockstep::Run run = healthy();
  ends_with_signal(run, Rank{1}, 9, kStart + 30 * kMs);
  run.ends[1].our_signal = 9;
  EXPECT_EQ(check(run).outcome, Outcome::kPass);
  run.ends[1].signal = 11;  // It crashed while we were ending it.
  run.ends[1].our_signal = 15;
  EXPECT_EQ(check(run).outcome, Outcome::kPass);
}

TEST(ProcessEnd, LeavingBeforeByeIsLeavingEarly) {
  lockstep::Run run = healthy();
  std::erase_if(run.requests,
                [](const Request& r) { return r.rank == Rank{1} && r.message == "bye"; });
  ask(run, Rank{1}, "step", kStart, std::nullopt);
  ends_with_status(run, Rank{1}, 0, kStart + 30 * kMs);
  fail(ask(run, Rank{0}, "step", kStart, std::nullopt), "Connection closed by peer",
       kStart + 20 * kMs);
  const Finding finding = check(run).findings.at(0);
  EXPECT_EQ(finding.code, Code::kLeftEarly);
  EXPECT_EQ(finding.culprits, RankSet{Rank{1}});
  EXPECT_EQ(finding.consequences, 1U);
  EXPECT_FALSE(finding.sites.empty());
}

TEST(ProcessEnd, WithoutAConversationLeavingIsEarlyIfOthersNeededIt) {
  const Row row = times(3, {all_reduce("dp", 8)});
  lockstep::Run run = make_run({row + Row{all_reduce("dp", 8).failed()}, row});
  ends_with_status(run, Rank{0}, 1, kStart + 500 * kMs);
  ends_with_status(run, Rank{1}, 0, kStart + 40 * kMs);
  EXPECT_EQ(check(run).findings.at(0).code, Code::kLeftEarly);
  // The twin: an operation nobody waited for.
  run = make_run({row + Row{all_reduce("dp", 8).async().pending()}, row});
  EXPECT_EQ(check(run).outcome, Outcome::kPass);
}

TEST(ProcessEnd, WhereMostLeftNobodyIsNamed) {
  const Row row = times(3, {all_reduce("dp", 8)});
  const Row one_more = row + Row{all_reduce("dp", 8).failed()};
  const auto left = [&](const std::vector<Row>& rows) {
    lockstep::Run run = make_run(rows);
    for (const Rank rank : RankSet::all(3)) {
      const bool stayed = rows[static_cast<std::size_t>(rank.value)].size() > row.size();
      ends_with_status(run, rank, stayed ? 1 : 0,
                       kStart + (stayed ? 500 : 40 - static_cast<std::uint64_t>(rank.value)) * kMs);
    }
    return check(run).findings.at(0);
  };
  const Finding most = left({row, one_more, row});
  EXPECT_EQ(most.headline, "ranks 0,2 exited with status 0 while others still need them");
  EXPECT_TRUE(most.culprits.empty());
  EXPECT_EQ(most.affected, RankSet::all(3));
  EXPECT_EQ(left({row, one_more, one_more}).culprits, RankSet{Rank{0}});
}

TEST(ProcessEnd, AnIncompleteJournalBlamesNobody) {
  lockstep::Run run = healthy();
  ends_with_signal(run, Rank{1}, 11, kStart + 30 * kMs);
  run.journal_complete = false;
  const Verdict verdict = check(run);
  EXPECT_EQ(verdict.outcome, Outcome::kFail);
  EXPECT_TRUE(verdict.findings[0].culprits.empty());
}

TEST(ProcessEnd, TroubleWithOurHostsIsUndecided) {
  lockstep::Run run = healthy();
  ask(run, Rank{1}, "step", kStart, kStart + kMs).outcome = "protocol";
  EXPECT_NE(check(run).reason.find(text_of(Code::kHostBrokeProtocol)), std::string::npos);
  run = healthy();
  ProcessEnd end;
  end.role = Role::kReference;
  end.signal = 11;
  run.ends.push_back(end);
  EXPECT_EQ(check(run).outcome, Outcome::kUndecided);
  EXPECT_NE(check(run).reason.find(text_of(Code::kHostBrokeProtocol)), std::string::npos);
}

// --- The two that state what is on record
// ------------------------------------------------------------------------

TEST(ExpectedMarks, AreAllThereOrUndecidedOrSkipped) {
  lockstep::Run run = healthy();
  EXPECT_EQ(checkers::ExpectedMarks().check(run).outcome, Outcome::kSkipped);
  run.plan.expected_marks = {"ran-out"};
  EXPECT_EQ(checkers::ExpectedMarks().check(run).outcome, Outcome::kUndecided);
  run.marks.push_back({0, 1, "ran-out"});
  EXPECT_EQ(checkers::ExpectedMarks().check(run).outcome, Outcome::kPass);
}

TEST(HistoryComplete, StatesWhatIsMissing) {
  EXPECT_EQ(checkers::HistoryComplete().check(healthy()).outcome, Outcome::kPass);
  const auto lacks = [](void (*change)(lockstep::Run&)) {
    lockstep::Run run = healthy();
    change(run);
    const Verdict verdict = checkers::HistoryComplete().check(run);
    EXPECT_EQ(verdict.outcome, Outcome::kUndecided);
    EXPECT_TRUE(verdict.findings.empty());
    EXPECT_EQ(verdict.reason.substr(0, 5), text_of(verdict.lacks.value_or(Code::kNone)));
    return verdict.lacks;
  };
  EXPECT_EQ(lacks([](lockstep::Run& run) { run.missing.emplace_back("rank 1's file ends early"); }),
            Code::kHistoryIncomplete);
  EXPECT_EQ(lacks([](lockstep::Run& run) { run.journal_complete = false; }),
            Code::kHistoryIncomplete);
  EXPECT_EQ(lacks([](lockstep::Run& run) { run.processes.pop_back(); }), Code::kHistoryIncomplete);
  EXPECT_EQ(lacks([](lockstep::Run& run) { run.processes[1].damaged = true; }),
            Code::kHistoryIncomplete);
  EXPECT_EQ(lacks([](lockstep::Run& run) { run.processes[1].closed = false; }),
            Code::kHistoryIncomplete);
  EXPECT_EQ(lacks([](lockstep::Run& run) { run.processes[1].dropped = 5; }), Code::kEventsDropped);
}

TEST(HistoryComplete, WhoWasEndedByUsOrItsLauncherHasNoClosingRecord) {
  lockstep::Run run = healthy();
  run.processes[1].closed = false;
  ends_with_signal(run, Rank{1}, 15, kStart + 30 * kMs);
  EXPECT_EQ(checkers::HistoryComplete().check(run).outcome, Outcome::kUndecided) << "by whom?";
  ProcessEnd& end = *std::find_if(run.ends.begin(), run.ends.end(),
                                  [](const ProcessEnd& e) { return e.rank == Rank{1}; });
  end.sender = Sender{900, "torchrun"};
  EXPECT_EQ(checkers::HistoryComplete().check(run).outcome, Outcome::kPass);
  end.sender.reset();
  end.our_signal = 15;
  EXPECT_EQ(checkers::HistoryComplete().check(run).outcome, Outcome::kPass);
  run.processes[1].damaged = true;
  EXPECT_EQ(checkers::HistoryComplete().check(run).outcome, Outcome::kUndecided);
}

// ---- Programs of the user's own launcher.

}  // namespace
}  // namespace lockstep::testing
