// Goal: the exception that a rank is handling while it waits is told as what took it there, and
// convicts it where it is passed on in a `finally` and the others handle none.
#include "checkers/exit/handled_exceptions.h"

#include <gtest/gtest.h>

#include "checkers/judge.h"
#include "tests/support/typed_run.h"

namespace lockstep::testing {
namespace {

const Call kGradient = all_reduce("dp", 8).at("t.py", 21);
const Call kBarrier = barrier("dp").at("t.py", 30);

/// Rank 1 made another call than the others, and this is what it was seen to handle there.
lockstep::Run handling(const std::string& text, bool in_finally, std::size_t world = 2) {
  std::vector<Row> rows(world, Row{kGradient, kGradient, kGradient.pending()});
  rows[1].back() = kBarrier.pending();
  lockstep::Run run = make_run(rows);
  hang(run);
  StackSample stack = stack_of(run, Rank{1}, {"c10d::Work::wait"});
  stack.frames.push_back({"/app/t.py", 30, "t.py", 30, "step", {}});
  stack.frames.back().in_finally = in_finally;
  stack.handles = text;
  stack.raised_at.frames = {{"/app/data.py", 7, "data.py", 7, "lookup", {}},
                            {"/app/t.py", 20, "t.py", 20, "step", {}}};
  run.stacks.push_back(std::move(stack));
  return run;
}

Finding only_finding(const lockstep::Run& run) {
  const checkers::Judgement judged = checkers::judge(run, checkers::all_checkers());
  EXPECT_EQ(judged.findings.size(), 1U);
  return judged.findings.empty() ? Finding{} : judged.findings.front();
}

bool has_site(const Finding& finding, const std::string& role, std::int32_t line) {
  return std::any_of(finding.sites.begin(), finding.sites.end(),
                     [&](const SiteRef& site) { return site.role == role && site.line == line; });
}

TEST(Handled, WhoIsAboutToFailIsNamed) {
  for (const std::size_t world : {2U, 3U, 4U}) {
    const Finding finding = only_finding(handling("KeyError: 3", true, world));
    EXPECT_EQ(finding.code, Code::kDifferentOp);
    EXPECT_EQ(finding.culprits, RankSet{Rank{1}});
    EXPECT_EQ(finding.confidence, Confidence::kCertain);
    EXPECT_EQ(finding.also.back(), Code::kRankDied);
    EXPECT_TRUE(has_site(finding, "raised", 7));
    EXPECT_TRUE(has_site(finding, "culprit", 30));
    EXPECT_NE(finding.cause.find("KeyError: 3 at data.py:7 took rank 1 out of its way"),
              std::string::npos);
  }
}

TEST(Handled, AnExceptConvictsNobody) {
  const Finding finding = only_finding(handling("KeyError: 3", false));
  EXPECT_TRUE(finding.culprits.empty());
  EXPECT_EQ(finding.evidence.back().text, "rank 1 waits while it handles KeyError: 3 at data.py:7");
  EXPECT_TRUE(has_site(finding, "raised", 7));
}

TEST(Handled, HowLoopsEndIsNoFailure) {
  EXPECT_TRUE(only_finding(handling("StopIteration", true)).culprits.empty());
  EXPECT_TRUE(only_finding(handling("GeneratorExit", true)).culprits.empty());
}

TEST(Handled, WhatSpeaksOfAPeerIsAConsequence) {
  const lockstep::Run run = handling("RuntimeError: Connection closed by peer", true);
  EXPECT_TRUE(checkers::handled_by(run).empty());
  EXPECT_TRUE(only_finding(run).culprits.empty());
}

TEST(Handled, AProgramMayStandUnderAnExcept) {  // except ImportError: main()
  lockstep::Run run = handling("ImportError: no module", false);
  for (CallSite& site : process_of(run, Rank{1}).sites) {
    if (!site.frames.empty())
      site.frames.push_back({"/app/m.py", 44, "m.py", 44, "<module>", {}});
  }
  StackSample& stack = run.stacks.back();
  stack.frames.push_back({"/app/m.py", 44, "m.py", 44, "<module>", {}});
  stack.raised_at.frames = {{"/app/m.py", 40, "m.py", 40, "<module>", {}}};
  EXPECT_TRUE(checkers::handled_by(run).empty());
}

TEST(Handled, WhereAllDoItNobodyIsNamed) {
  lockstep::Run run = handling("KeyError: 3", true);
  StackSample other = run.stacks.back();
  other.rank = Rank{0};
  other.pid = other.tid = process_of(run, Rank{0}).pid;
  run.stacks.push_back(std::move(other));
  EXPECT_TRUE(only_finding(run).culprits.empty());
}

TEST(Handled, WhoWasLetDownBeforeMayFailBecauseOfThat) {
  lockstep::Run run = handling("TimeoutError: no answer", true);
  process_of(run, Rank{1}).collectives[1].completed_ns.reset();
  EXPECT_TRUE(only_finding(run).culprits.empty());
}

TEST(Handled, BeforeItsLastCallItWasInAnother) {
  lockstep::Run run = handling("KeyError: 3", true);
  run.stacks.back().at_ns = kStart;
  EXPECT_TRUE(checkers::handled_by(run).empty());
}

TEST(Handled, AnIncompleteJournalConvictsNobody) {
  lockstep::Run run = handling("KeyError: 3", true);
  run.journal_complete = false;
  const checkers::Judgement judged = checkers::judge(run, checkers::all_checkers());
  for (const Finding& finding : judged.findings)
    EXPECT_TRUE(finding.culprits.empty());
}

}  // namespace
}  // namespace lockstep::testing
