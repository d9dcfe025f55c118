// Goal: a process whose program is over and that stays is told with what keeps it (LS103), once
// somebody has lost patience; one that may just be on its way is not.
#include "checkers/exit/stuck_at_exit.h"

#include <gtest/gtest.h>

#include "checkers/judge.h"
#include "tests/support/typed_run.h"

namespace lockstep::testing {
namespace {

constexpr std::uint64_t kS = 1'000 * kMs;
const char* const kThreading = "/usr/lib/python3.11/threading.py";

Frame python(const std::string& file, std::int32_t line, const std::string& function) {
  return {file, static_cast<std::uint64_t>(line), file, line, function, {}};
}

/// Rank 0 is home; what rank 1 (pid 1001) does is for the test to say.
lockstep::Run rank_1_stays() {
  lockstep::Run run = make_run(
      {{all_reduce("dp", 4).at("t.py", 5)}, {all_reduce("dp", 4).at("t.py", 5).on_thread(1001)}});
  for (CallSite& site : run.processes[1].sites) {
    if (!site.frames.empty())
      site.frames.push_back(python("t.py", 30, "<module>"));
  }
  std::erase_if(run.ends, [](const ProcessEnd& end) { return end.rank == Rank{1}; });
  run.acted.push_back({0, kStart + 30 * kS, "deadline", std::nullopt, 0, "--stall-limit 20 s"});
  ProcessEnd end{.at_ns = kStart + 31 * kS, .role = Role::kRank, .rank = Rank{1}, .pid = 1001};
  end.signal = end.our_signal = 15;
  run.ends.push_back(end);
  return run;
}

void see(lockstep::Run& run, std::uint64_t at_s, std::int32_t tid, std::vector<Frame> frames) {
  run.stacks.push_back({.at_ns = kStart + at_s * kS,
                        .rank = Rank{1},
                        .pid = 1001,
                        .tid = tid,
                        .frames = std::move(frames)});
}

std::vector<Frame> in_shutdown() { return {python(kThreading, 1590, "_shutdown")}; }
std::vector<Frame> in_thread() {
  return {python(kThreading, 331, "wait"), python("t.py", 12, "report"),
          python(kThreading, 1002, "_bootstrap")};
}

Verdict checked(const lockstep::Run& run) { return checkers::StuckAtExit().check(run); }

TEST(StuckAtExit, AThreadThatIsNotADaemonIsNamedWithItsLine) {
  lockstep::Run run = rank_1_stays();
  for (const std::uint64_t at : {10U, 20U}) {
    see(run, at, 1001, in_shutdown());
    see(run, at, 1050, in_thread());
  }
  const auto judged = checkers::judge(run, checkers::all_checkers());
  ASSERT_EQ(judged.findings.size(), 1U);
  const Finding& finding = judged.findings.front();
  EXPECT_EQ(finding.code, Code::kWillNotExit);
  EXPECT_EQ(finding.culprits, RankSet{Rank{1}});
  EXPECT_EQ(finding.headline,
            "rank 1 will not exit: its program is over, and it waits for a thread that is not a "
            "daemon at t.py:12");
  ASSERT_EQ(finding.sites.size(), 1U);
  EXPECT_EQ(finding.sites[0].line, 12);
}

TEST(Exiting, TheLineThatStartedTheThreadIsNamedWhereItIsCertain) {
  lockstep::Run run = rank_1_stays();
  for (const std::uint64_t at : {10U, 20U}) {
    see(run, at, 1001, in_shutdown());
    see(run, at, 1050, in_thread());
    run.stacks.back().started_ns = kStart;
  }
  Process& process = run.processes[1];
  process.begun.push_back({.what = history::Begins::kNothing, .at_ns = kStart / 2});
  const auto begin_at = [&](std::int32_t line) {
    process.sites.push_back(
        {{python(kThreading, 957, "Thread.start"), python("t.py", line, "main")}});
    process.begun.push_back({.what = history::Begins::kThread,
                             .at_ns = kStart + kMs,
                             .site = static_cast<std::uint32_t>(process.sites.size() - 1),
                             .count = 1});
  };
  begin_at(7);
  Verdict verdict = checked(run);
  ASSERT_EQ(verdict.findings.size(), 1U);
  EXPECT_EQ(verdict.findings[0].evidence[0].text,
            "thread 1050 is at t.py:12, and was started at t.py:7");
  ASSERT_EQ(verdict.findings[0].sites.size(), 2U);
  EXPECT_EQ(verdict.findings[0].sites[1].role, "started");
  EXPECT_EQ(verdict.findings[0].sites[1].line, 7);
  begin_at(8);
  verdict = checked(run);
  EXPECT_EQ(verdict.findings.at(0).evidence[0].text, "thread 1050 is at t.py:12");
  EXPECT_EQ(verdict.findings.at(0).sites.size(), 1U);
}

std::vector<Frame> in_pool(std::vector<Frame> task) {
  task.push_back(python("/usr/lib/python3.11/concurrent/futures/thread.py", 83, "_worker"));
  task.push_back(python(kThreading, 1002, "Thread._bootstrap"));
  return task;
}

TEST(StuckAtExit, TheTaskOfAPoolThatTheInterpreterWaitsForIsNamed) {
  lockstep::Run run = rank_1_stays();
  for (const std::uint64_t at : {10U, 20U}) {
    std::vector<Frame> main = in_shutdown();
    main.insert(main.begin(),
                python("/usr/lib/python3.11/concurrent/futures/thread.py", 31, "_python_exit"));
    see(run, at, 1001, main);
    see(run, at, 1050, in_pool({python("t.py", 12, "write_lines")}));
    see(run, at, 1051, in_pool({}));
    see(run, at, 1052, in_thread());  // A daemon: the pool comes first.
  }
  const Verdict verdict = checked(run);
  ASSERT_EQ(verdict.findings.size(), 1U);
  EXPECT_EQ(verdict.findings[0].headline,
            "rank 1 will not exit: its program is over, and it waits for a task of "
            "concurrent.futures at t.py:12");
}

TEST(StuckAtExit, TheTaskThatAsyncioWaitsForWhenItsLoopIsOverIsNamed) {
  const std::string base = "/usr/lib/python3.11/asyncio/base_events.py";
  for (const bool closes : {true, false}) {
    lockstep::Run run = rank_1_stays();
    for (const std::uint64_t at : {10U, 20U}) {
      see(run, at, 1001,
          {python(base, 607, "BaseEventLoop.run_forever"), python("t.py", 30, "<module>")});
      see(run, at, 1050, in_pool({python("t.py", 12, "write_lines")}));
      if (closes)
        see(run, at, 1051, {python(base, 575, "BaseEventLoop._do_shutdown")});
    }
    const Verdict verdict = checked(run);
    ASSERT_EQ(verdict.findings.size(), closes ? 1U : 0U);
    if (closes) {
      EXPECT_EQ(verdict.findings[0].headline,
                "rank 1 will not exit: its event loop is over, and it waits for a task of "
                "asyncio's default executor at t.py:12");
    }
  }
}

TEST(StuckAtExit, ACommandThatIsARankItselfIsNamedAsThat) {
  lockstep::Run run = rank_1_stays();
  run.starts.insert(run.starts.begin(), {0, kStart / 8, Role::kOther, std::nullopt, 1001});
  for (const std::uint64_t at : {10U, 20U}) {
    see(run, at, 1001, in_shutdown());
    see(run, at, 1050, in_thread());
  }
  const Verdict verdict = checked(run);
  ASSERT_EQ(verdict.findings.size(), 1U);
  EXPECT_EQ(verdict.findings[0].culprits, RankSet{Rank{1}});
  EXPECT_EQ(verdict.findings[0].headline.substr(0, 20), "rank 1 will not exit");
}

TEST(StuckAtExit, OfSeveralThreadsNoneIsPicked) {
  lockstep::Run run = rank_1_stays();
  for (const std::uint64_t at : {10U, 20U}) {
    see(run, at, 1001, in_shutdown());
    see(run, at, 1050, in_thread());
    see(run, at, 1051, in_thread());
    see(run, at, 1052, {python("/py/torch/_pin.py", 3, "_pin_memory_loop")});
  }
  const Verdict verdict = checked(run);
  ASSERT_EQ(verdict.findings.size(), 1U);
  EXPECT_NE(verdict.findings[0].headline.find("a daemon (one of 2)"), std::string::npos);
  EXPECT_TRUE(verdict.findings[0].sites.empty());
}

TEST(StuckAtExit, AnExitHandlerIsWhatTheMainThreadRunsBelowNoModule) {
  lockstep::Run run = rank_1_stays();
  for (const std::uint64_t at : {10U, 20U})
    see(run, at, 1001, {python("t.py", 21, "upload")});
  const Verdict verdict = checked(run);
  ASSERT_EQ(verdict.findings.size(), 1U);
  EXPECT_EQ(verdict.findings[0].headline,
            "rank 1 will not exit: its program is over, and it is in an exit handler (upload) at "
            "t.py:21");
  // In a program that embeds Python any function may be the outermost.
  for (CallSite& site : run.processes[1].sites)
    std::erase_if(site.frames, [](const Frame& frame) { return frame.function == "<module>"; });
  EXPECT_TRUE(checked(run).findings.empty());
}

TEST(StuckAtExit, TheChildThatItWaitsForIsNamed) {
  lockstep::Run run = rank_1_stays();
  for (const std::uint64_t at : {10U, 20U})
    see(run, at, 1001,
        {python("/usr/lib/python3.11/multiprocessing/popen_fork.py", 27, "poll"),
         python("/usr/lib/python3.11/multiprocessing/process.py", 149, "join"),
         python("/usr/lib/python3.11/multiprocessing/util.py", 357, "_exit_function")});
  StateSample state{.at_ns = kStart + 20 * kS, .rank = Rank{1}, .pid = 1001};
  state.children = {{4711, "python", 'S', "hrtimer_nanosleep"}, {4712, "other", 'S', ""}};
  state.waits_for_child = 4711;
  run.states.push_back(state);
  const Verdict verdict = checked(run);
  ASSERT_EQ(verdict.findings.size(), 1U);
  EXPECT_NE(verdict.findings[0].headline.find("which waits for child pid 4711 (python)"),
            std::string::npos);
  EXPECT_EQ(verdict.findings[0].evidence.front().text,
            "child pid 4711 (python) sleeps in hrtimer_nanosleep");
}

TEST(StuckAtExit, WhatWasSeenOnceMayHaveGotThere) {
  lockstep::Run run = rank_1_stays();
  see(run, 29, 1001, in_shutdown());
  see(run, 29, 1050, in_thread());
  EXPECT_TRUE(checked(run).findings.empty());
  EXPECT_EQ(checked(run).outcome, Outcome::kUndecided);
  run.ends.pop_back();  // While it lives: for the notice it is enough.
  EXPECT_EQ(checkers::on_their_way_out(run).size(), 1U);
}

TEST(StuckAtExit, AProgramThatRunsIsNotLeaving) {
  lockstep::Run run = rank_1_stays();
  for (const std::uint64_t at : {10U, 20U})
    see(run, at, 1001, {python("t.py", 9, "train"), python("t.py", 30, "<module>")});
  EXPECT_EQ(checked(run).outcome, Outcome::kPass);
  // It was leaving, and is not any more (a handler that was interrupted).
  lockstep::Run back = rank_1_stays();
  see(back, 5, 1001, in_shutdown());
  see(back, 12, 1001, in_shutdown());
  see(back, 20, 1001, {python("t.py", 30, "<module>")});
  EXPECT_TRUE(checked(back).findings.empty());
}

TEST(StuckAtExit, WhoeverEndedByItselfIsNotAsked) {
  const lockstep::Run run = make_run({{all_reduce("dp", 4)}, {all_reduce("dp", 4)}});
  EXPECT_EQ(checked(run).outcome, Outcome::kSkipped);
}

}  // namespace
}  // namespace lockstep::testing
