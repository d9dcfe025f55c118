// Goal: ranks that wait in init_process_group are told for whom; who that is, is named only where
// it is known what holds it.
#include "checkers/hang/rendezvous.h"

#include <gtest/gtest.h>

#include "checkers/judge.h"
#include "tests/support/typed_run.h"

namespace lockstep::testing {
namespace {

/// Rank 0 waits in init_process_group, and in the end a limit ends the run. No rank has a group.
lockstep::Run joining(const char* wchan_of_rank_1) {
  lockstep::Run run = make_run({{}, {}});
  hang(run);
  run.processes.clear();
  run.acted.push_back({0, stall_ns(run) + 350 * kMs, "deadline", std::nullopt, 0, "--stall-limit"});
  for (StateSample& sample : run.states) {
    if (sample.rank == Rank{1})
      sample.threads.front().wchan = wchan_of_rank_1;
  }
  StackSample stack = stack_of(run, Rank{0}, {"poll", "c10d::TCPStore::wait"});
  stack.frames.push_back({"",
                          0,
                          "/py/site-packages/torch/distributed/distributed_c10d.py",
                          1700,
                          "init_process_group",
                          {}});
  stack.frames.push_back({"", 0, "t.py", 12, "main", {}});
  run.stacks.push_back(stack);
  return run;
}

Verdict checked(const lockstep::Run& run) { return checkers::Rendezvous().check(run); }

TEST(Rendezvous, TheRankThatIsHeldElsewhereIsNamed) {
  const auto judged = checkers::judge(joining("hrtimer_nanosleep"), checkers::all_checkers());
  ASSERT_EQ(judged.findings.size(), 1U);
  const Finding& finding = judged.findings.front();
  EXPECT_EQ(finding.code, Code::kNeverJoined);
  EXPECT_EQ(finding.headline, "rank 1 never came to init_process_group; rank 0 waits in it");
  EXPECT_EQ(finding.culprits, RankSet{Rank{1}});
  EXPECT_EQ(finding.evidence.front().text, "rank 1 sleeps");
  EXPECT_EQ(finding.sites.front().line, 12);
}

TEST(Rendezvous, WhoMayBeOnItsWayIsNot) {
  const Verdict verdict = checked(joining("futex_do_wait"));
  ASSERT_EQ(verdict.findings.size(), 1U);
  EXPECT_TRUE(verdict.findings[0].culprits.empty());
}

TEST(Rendezvous, WhereAllAreThereTheWorldIsTooLarge) {
  lockstep::Run run = joining("do_poll");
  StackSample stack = run.stacks.front();
  stack.rank = Rank{1};
  stack.pid = stack.tid = 1001;
  run.stacks.push_back(stack);
  const Verdict verdict = checked(run);
  ASSERT_EQ(verdict.findings.size(), 1U);
  EXPECT_TRUE(verdict.findings[0].culprits.empty());
  EXPECT_EQ(verdict.findings[0].affected, RankSet::all(2));
}

TEST(Rendezvous, ARankThatIsThereTwiceIsNamedWithBothProcesses) {
  lockstep::Run run = joining("do_poll");
  for (const std::int32_t pid : {1001, 1002}) {
    StackSample stack = run.stacks.front();
    stack.rank = Rank{1};
    stack.pid = stack.tid = pid;
    run.stacks.push_back(stack);
  }
  ProcessStart second = run.starts.back();
  second.pid = 1002;
  second.at_ns = kStart;
  run.starts.push_back(second);
  const Verdict verdict = checked(run);
  ASSERT_EQ(verdict.findings.size(), 1U);
  EXPECT_EQ(verdict.findings[0].culprits, RankSet{Rank{1}});
  EXPECT_EQ(
      verdict.findings[0].headline,
      "several processes were given one RANK: rank 1 is there 2 times: pid 1001 and pid 1002");
  // One of them had gone before: it was started again.
  ends_with_status(run, Rank{1}, 1, kStart - kMs);
  EXPECT_TRUE(checked(run).findings[0].culprits.empty());
}

TEST(Rendezvous, WhoFailedToJoinAsARankThatAnotherIsIsThereToo) {
  lockstep::Run run = joining("do_poll");
  ProcessStart second = run.starts.front();
  second.pid = 1002;
  second.at_ns = kStart;
  run.starts.push_back(second);
  run.raised.push_back({.at_ns = kStart + kMs,
                        .rank = Rank{0},
                        .pid = 1002,
                        .text = "DistNetworkError: EADDRINUSE"});
  EXPECT_EQ(checked(run).findings.at(0).headline,
            "rank 1 never came to init_process_group; rank 0 waits in it")
      << "it failed elsewhere";
  run.raised.back().raised_at.frames = run.stacks.front().frames;
  const Verdict verdict = checked(run);
  ASSERT_EQ(verdict.findings.size(), 1U);
  EXPECT_EQ(verdict.findings[0].culprits, RankSet{Rank{0}});
  EXPECT_EQ(
      verdict.findings[0].headline,
      "several processes were given one RANK: rank 0 is there 2 times: pid 1000 and pid 1002");
}

TEST(Rendezvous, NothingIsSaidBeforeALimitOrOnceThereIsAGroup) {
  lockstep::Run run = joining("hrtimer_nanosleep");
  run.acted.back().action = "interrupted";
  EXPECT_EQ(checked(run).outcome, Outcome::kUndecided);
  run = joining("hrtimer_nanosleep");
  run.journal_complete = false;
  EXPECT_EQ(checked(run).outcome, Outcome::kUndecided);
  run = joining("hrtimer_nanosleep");
  run.processes = make_run({{all_reduce("dp", 8)}, {all_reduce("dp", 8)}}).processes;
  EXPECT_EQ(checked(run).outcome, Outcome::kSkipped);
  EXPECT_EQ(checked(make_run({{}, {}})).outcome, Outcome::kSkipped);
}

TEST(Rendezvous, WhoLeftBeforeItJoinedIsNamedOnceTheUserLosesPatience) {
  lockstep::Run run = joining("hrtimer_nanosleep");
  run.acted.back().action = "interrupted";
  ends_with_status(run, Rank{1}, 3, kStart);
  EXPECT_EQ(checked(run).outcome, Outcome::kUndecided) << "another checker tells of a failure";
  ends_with_status(run, Rank{1}, 0, kStart);
  const Verdict verdict = checked(run);
  ASSERT_EQ(verdict.findings.size(), 1U);
  EXPECT_EQ(verdict.findings[0].culprits, RankSet{Rank{1}});
  EXPECT_EQ(verdict.findings[0].evidence.front().text, "rank 1 exited with status 0 before");
}

/// Rank 0 waits for the rank of `world_size` that nobody was told to be, and somebody lost
/// patience.
lockstep::Run too_few(std::uint64_t waited_ms) {
  lockstep::Run run = joining("do_poll");
  run.plan.world_size = 3;
  StackSample stack = run.stacks.front();
  stack.rank = Rank{1};
  stack.pid = stack.tid = 1001;
  run.stacks.push_back(stack);
  for (StackSample late : std::vector(run.stacks)) {
    late.at_ns += waited_ms * kMs;
    run.stacks.push_back(late);
  }
  run.acted.back().action = "interrupted";
  run.acted.back().at_ns = run.stacks.back().at_ns + kMs;
  for (ProcessEnd& end : run.ends)
    end.at_ns = run.acted.back().at_ns + kMs;
  return run;
}

TEST(Rendezvous, OfARankThatWasNeverStartedIsToldAfterALongWait) {
  const Verdict verdict = checked(too_few(35'000));
  ASSERT_EQ(verdict.findings.size(), 1U);
  const Finding& finding = verdict.findings.front();
  EXPECT_EQ(finding.code, Code::kNeverJoined);
  EXPECT_EQ(finding.headline, "rank 2 never came to init_process_group; ranks 0,1 wait in it");
  EXPECT_TRUE(finding.culprits.empty()) << "its process may be on another host";
  EXPECT_EQ(finding.evidence.front().text,
            "no process of the job was told to be rank 2, and WORLD_SIZE is 3");
  EXPECT_EQ(finding.evidence.back().text, "ranks 0,1 waited there for 35 s");
  EXPECT_EQ(finding.sites.front().line, 12);
  EXPECT_EQ(checked(too_few(5'000)).outcome, Outcome::kUndecided) << "it may just have been slow";
}

TEST(Rendezvous, WhatRanksDoAfterTheirLauncherWasKilledIsNoFindingOfTheirs) {
  lockstep::Run run = joining("hrtimer_nanosleep");
  run.launcher_ends.push_back({.at_ns = run.stacks.front().at_ns + kMs,
                               .pid = 900,
                               .name = "torchrun",
                               .signal = 10,
                               .ranks = RankSet::all(2),
                               .pids = {1000, 1001}});
  EXPECT_EQ(checked(run).outcome, Outcome::kSkipped);
  run.launcher_ends.front().at_ns = run.acted.back().at_ns + kMs;  // The limit came first.
  EXPECT_EQ(checked(run).findings.size(), 1U);
}

/// Rank 0 was in a group of two and ended; rank 1 waits in init_process_group.
lockstep::Run after_its_group() {
  lockstep::Run run = joining("do_poll");
  run.stacks.front().rank = Rank{1};
  run.stacks.front().pid = run.stacks.front().tid = 1001;
  run.processes = make_run({{all_reduce("dp", 8)}, {all_reduce("dp", 8)}}).processes;
  run.processes.pop_back();
  ends_with_status(run, Rank{0}, 0, run.stacks.front().at_ns - kMs);
  return run;
}

TEST(Rendezvous, WhoHadItsGroupAndEndedIsNotSaidToHaveNeverCome) {
  const Verdict verdict = checked(after_its_group());
  ASSERT_EQ(verdict.findings.size(), 1U);
  EXPECT_EQ(verdict.findings[0].headline,
            "rank 1 waits in init_process_group, and rank 0 has ended after its group");
  EXPECT_TRUE(verdict.findings[0].culprits.empty());
}

Stranger stranger() {
  return {.at_ns = kStart,
          .rank = Rank{0},
          .pid = 1000,
          .address = "127.0.0.1:29500",
          .other = 77,
          .name = "python other.py"};
}

TEST(Rendezvous, APeerOfAnotherJobIsToldWithItsProcess) {
  lockstep::Run run = after_its_group();
  run.strangers.push_back(stranger());
  const auto judged = checkers::judge(run, checkers::all_checkers());
  ASSERT_EQ(judged.findings.size(), 1U);
  const Finding& finding = judged.findings.front();
  EXPECT_EQ(finding.code, Code::kNeverJoined);
  EXPECT_EQ(finding.confidence, Confidence::kCertain);
  EXPECT_TRUE(finding.culprits.empty());
  EXPECT_EQ(finding.headline,
            "the peer of rank 0 is no process of this job: pid 77 (python other.py)");
  EXPECT_EQ(finding.evidence.at(0).text, "they met at 127.0.0.1:29500");
  EXPECT_EQ(finding.evidence.at(2).text, "rank 1 of this job never came into it");
}

TEST(Rendezvous, AStrangerAloneIsNoFinding) {
  // Each of two locksteps sees a rank of one job.
  lockstep::Run run = make_run({{all_reduce("dp", 8)}, {all_reduce("dp", 8)}});
  run.strangers.push_back(stranger());
  EXPECT_TRUE(checked(run).findings.empty()) << "all are there, and a tracker too";
  run.processes.pop_back();
  EXPECT_TRUE(checked(run).findings.empty()) << "rank 1 ended well: it was not seen inside";
  ends_with_status(run, Rank{1}, 1, last_event(run) + kMs);
  EXPECT_EQ(checked(run).findings.size(), 1U);
  std::erase_if(run.starts, [](const ProcessStart& start) { return start.rank == Rank{1}; });
  EXPECT_TRUE(checked(run).findings.empty()) << "rank 1 is not here";
}

TEST(Rendezvous, WhoFailedOnItsOwnAndLeftItsPlaceToAStrangerComesFirst) {
  lockstep::Run run = after_its_group();
  run.acted.clear();
  run.strangers.push_back(stranger());
  raises(run, Rank{1}, "DistNetworkError: EADDRINUSE", kStart + 40 * kMs);
  for (ProcessEnd& end : run.ends) {
    end.signal.reset();
    end.our_signal.reset();
  }
  const auto judged = checkers::judge(run, checkers::all_checkers());
  ASSERT_EQ(judged.findings.size(), 1U);
  EXPECT_EQ(judged.findings.front().code, Code::kRankDied);
  EXPECT_EQ(judged.findings.front().culprits, RankSet{Rank{1}});
}

/// Rank 1 raised before it had a group, and rank 0 has waited in init_process_group for 3 s since.
lockstep::Run failed_before_joining() {
  lockstep::Run run = joining("hrtimer_nanosleep");
  run.live = true;
  run.acted.clear();
  std::erase_if(run.ends, [](const ProcessEnd& end) { return end.rank == Rank{0}; });
  ends_with_status(run, Rank{1}, 1, kStart);
  run.ends.back().signal.reset();
  run.ends.back().our_signal.reset();
  run.stacks.push_back(run.stacks.back());
  run.stacks.back().at_ns += 3'000 * kMs;
  return run;
}

TEST(Rendezvous, WhoFailedBeforeItJoinedKeepsTheOthersForEver) {
  EXPECT_EQ(checkers::cannot_all_join(failed_before_joining(), false),
            "rank 1 failed before init_process_group; rank 0 waits in it for it");
}

TEST(Rendezvous, ALauncherThatWaitsStartsNobody) {
  lockstep::Run run = failed_before_joining();
  run.starts.push_back({.at_ns = 1, .role = Role::kOther, .pid = 900});
  EXPECT_FALSE(checkers::cannot_all_join(run, false).has_value());
  EXPECT_TRUE(checkers::cannot_all_join(run, true).has_value());
}

TEST(Rendezvous, WhereSomebodyMayStillComeNothingIsCertain) {
  const auto silent = [](void (*change)(lockstep::Run & run)) {
    lockstep::Run run = failed_before_joining();
    change(run);
    return !checkers::cannot_all_join(run, false).has_value();
  };
  EXPECT_TRUE(silent([](auto& run) { run.ends.clear(); })) << "it lives";
  EXPECT_TRUE(silent([](auto& run) { run.ends.back().exit_status = 0; })) << "it may not be needed";
  EXPECT_TRUE(silent([](auto& run) { run.ends.back().our_signal = 15; })) << "our own doing";
  EXPECT_TRUE(silent([](auto& run) { run.stacks.pop_back(); })) << "not for long";
  EXPECT_TRUE(silent([](auto& run) { run.stacks.front().frames.clear(); })) << "it has just come";
  EXPECT_TRUE(silent([](auto& run) { run.stacks.back().frames.clear(); })) << "it has gone on";
  EXPECT_TRUE(silent([](auto& run) { run.starts.push_back({.role = Role::kOther, .pid = 7}); }))
      << "a launcher may start it again";
  EXPECT_TRUE(silent([](auto& run) {
    run.starts.push_back({.role = Role::kRank, .rank = Rank{2}, .pid = 1002});
  })) << "rank 2 is on its way, and may be late because of its data";
  EXPECT_TRUE(silent([](auto& run) {
    run.processes = make_run({{all_reduce("dp", 8)}, {}}).processes;
  })) << "there is a group";
}

TEST(Rendezvous, AnEarlierJobHadItsGroupAndTheNextHasNone) {
  lockstep::Run run = joining("hrtimer_nanosleep");
  run.processes = make_run({{all_reduce("dp", 8)}, {all_reduce("dp", 8)}}).processes;
  for (lockstep::Process& process : run.processes) {
    process.pid -= 500;
    ProcessEnd end;
    end.pid = process.pid;
    end.rank = process.rank;
    end.at_ns = kStart;
    end.exit_status = 0;
    run.ends.push_back(end);
  }
  const Verdict verdict = checked(run);
  ASSERT_EQ(verdict.findings.size(), 1U);
  EXPECT_EQ(verdict.findings[0].headline,
            "rank 1 never came to init_process_group; rank 0 waits in it");
  EXPECT_EQ(verdict.findings[0].culprits, RankSet{Rank{1}});
  run.starts.clear();  // Rank 1 was not started again: there is nothing that could hold it.
  EXPECT_TRUE(checked(run).findings.at(0).culprits.empty());
}

/// All were in a group and destroyed it; rank 1 ended, rank 0 comes to another one.
lockstep::Run joining_again(const std::string& text) {
  const Row row = times(3, {all_reduce("0", 4).at("t.py", 20)});
  lockstep::Run run = make_run({row, row, row});
  const std::uint64_t at_ns = last_event(run) + 8'000 * kMs;
  for (const Rank rank : {Rank{0}, Rank{2}}) {
    raises(run, rank, text, at_ns);
    run.raised.back().raised_at.frames = {
        {"/py/site-packages/torch/distributed/distributed_c10d.py",
         9,
         "/py/site-packages/torch/distributed/distributed_c10d.py",
         1700,
         "init_process_group",
         {}},
        {"/app/t.py", 12, "t.py", 12, "evaluate", {}}};
  }
  return run;
}

TEST(Rendezvous, WhoEndedWhileTheOthersMeetAgainIsNamed) {
  constexpr const char* kText =
      "torch.distributed.DistStoreError: Timed out after 5 seconds waiting for clients. 2/3";
  const auto judged = [](const lockstep::Run& run) {
    return checkers::judge(run, checkers::all_checkers()).findings.front();
  };
  const Finding finding = judged(joining_again(kText));
  EXPECT_EQ(finding.code, Code::kLeftEarly);
  EXPECT_EQ(finding.culprits, RankSet{Rank{1}});
  EXPECT_EQ(finding.evidence.at(1).text,
            "ranks 0,2 came to another init_process_group, and nobody was left to come to it");
  // It failed for another reason; or one that lives may be whom they wait for.
  EXPECT_EQ(judged(joining_again("RuntimeError: port 29500 is in use")).code, Code::kRankDied);
  lockstep::Run run = joining_again(kText);
  std::erase_if(run.raised, [](const Raised& raised) { return raised.rank == Rank{2}; });
  EXPECT_NE(judged(run).code, Code::kLeftEarly);
}

/// Its limit is long, and the run is ended while it waits.
TEST(Rendezvous, WhoEndedIsNamedWhileAnotherStillWaitsToMeetAgain) {
  const Row row = times(3, {all_reduce("0", 4).at("t.py", 20)});
  const auto waits_for = [&](std::uint64_t wait_ms) {
    lockstep::Run run = make_run({row, row});
    ends_with_status(run, Rank{1}, 0, last_event(run) + kMs);
    hang(run);
    run.stacks.clear();
    for (const std::uint64_t ms : {std::uint64_t{10}, wait_ms}) {
      StackSample stack = stack_of(run, Rank{0}, {"poll", "c10d::TCPStore::TCPStore"});
      stack.at_ns = last_event(run) + ms * kMs;
      run.stacks.push_back(stack);
    }
    for (ProcessEnd& end : run.ends) {
      if (end.rank == Rank{0})
        end.at_ns = last_event(run) + (wait_ms + 500) * kMs;
    }
    for (Acted& act : run.acted)
      act.at_ns = last_event(run) + (wait_ms + 400) * kMs;
    return checkers::judge(run, checkers::all_checkers());
  };
  const auto judged = waits_for(6'000);
  ASSERT_EQ(judged.findings.size(), 1U);
  EXPECT_EQ(judged.findings.front().code, Code::kLeftEarly);
  EXPECT_EQ(judged.findings.front().culprits, RankSet{Rank{1}});
  EXPECT_TRUE(waits_for(400).findings.empty()) << "it may just have come there";
}

}  // namespace
}  // namespace lockstep::testing
