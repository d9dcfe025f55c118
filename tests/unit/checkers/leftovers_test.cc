// Goal: what outlives a job is told with what a user needs to act on it (LS104, LS106), children
// that nobody asked for are a warning (LS105), and what we ended ourselves is nobody's fault.
#include "checkers/exit/leftovers.h"

#include <gtest/gtest.h>

#include "checkers/exit/descriptor_growth.h"
#include "checkers/exit/device_choice.h"
#include "checkers/judge.h"
#include "tests/support/typed_run.h"

namespace lockstep::testing {
namespace {

constexpr std::uint64_t kS = 1'000 * kMs;

lockstep::Run healthy() { return make_run({{all_reduce("dp", 4)}, {all_reduce("dp", 4)}}); }

lockstep::Run with_process(std::optional<Rank> rank) {
  lockstep::Run run = healthy();
  run.leftovers.push_back({.at_ns = kStart + kS,
                           .kind = "process",
                           .name = "python -m http.server",
                           .pid = 4712,
                           .rank = rank,
                           .parent = 1001,
                           .parent_name = "python",
                           .ports = {"127.0.0.1:8000"}});
  return run;
}

lockstep::Run with_zombie(bool taken) {
  lockstep::Run run = healthy();
  run.unwaited.push_back({.at_ns = kStart + 5 * kS,
                          .since_ns = kStart + 2 * kS,
                          .pid = 4713,
                          .name = "gzip",
                          .parent = 1001,
                          .parent_name = "python",
                          .taken = taken});
  return run;
}

Verdict checked(const lockstep::Run& run) { return checkers::Leftovers().check(run); }

TEST(Leftovers, AProcessIsToldWithItsPidItsRankAndItsPort) {
  const Verdict verdict = checked(with_process(Rank{1}));
  EXPECT_EQ(verdict.outcome, Outcome::kFail);
  ASSERT_EQ(verdict.findings.size(), 1U);
  const Finding& finding = verdict.findings[0];
  EXPECT_EQ(finding.code, Code::kOrphan);
  EXPECT_EQ(finding.also, std::vector<Code>{Code::kLeftover});
  EXPECT_EQ(finding.culprits, RankSet{Rank{1}});
  EXPECT_EQ(finding.headline, "pid 4712 (python -m http.server) of rank 1 outlived the job");
  EXPECT_EQ(finding.evidence.front().text,
            "pid 4712: python -m http.server, of rank 1, started by pid 1001 (python), listens on "
            "127.0.0.1:8000");
}

TEST(Leftovers, TheLineThatStartedItIsNamedWhereItIsCertain) {
  lockstep::Run run = with_process(Rank{1});
  run.leftovers[0].lineage = {{4712, kStart}, {1001, kStart / 2}};
  Process& process = run.processes[1];
  process.begun.push_back({.what = history::Begins::kNothing, .at_ns = kStart / 2});
  const auto begin_at = [&](std::int32_t line) {
    process.sites.push_back(
        {{{"t.py", static_cast<std::uint64_t>(line), "t.py", line, "main", {}}}});
    process.begun.push_back({.what = history::Begins::kProcess,
                             .at_ns = kStart - kMs,
                             .site = static_cast<std::uint32_t>(process.sites.size() - 1),
                             .count = 1});
  };
  begin_at(7);
  Finding finding = checked(run).findings.at(0);
  EXPECT_EQ(finding.headline,
            "pid 4712 (python -m http.server) of rank 1, started at t.py:7, outlived the job");
  ASSERT_EQ(finding.sites.size(), 1U);
  EXPECT_EQ(finding.sites[0].role, "started");
  EXPECT_EQ(finding.sites[0].line, 7);
  begin_at(8);
  finding = checked(run).findings.at(0);
  EXPECT_EQ(finding.headline, "pid 4712 (python -m http.server) of rank 1 outlived the job");
  EXPECT_TRUE(finding.sites.empty());
}

TEST(Leftovers, MemoryOfAGpuThatAProcessKeepsIsTold) {
  lockstep::Run run = with_process(Rank{1});
  run.leftovers[0].ports.clear();
  EXPECT_TRUE(checked(run).findings.at(0).also.empty());
  run.leftovers[0].gpus = {"/dev/nvidia0", "/dev/nvidia1"};
  const Finding finding = checked(run).findings.at(0);
  EXPECT_EQ(finding.also, std::vector<Code>{Code::kLeftover});
  EXPECT_EQ(finding.evidence.front().text,
            "pid 4712: python -m http.server, of rank 1, started by pid 1001 (python), keeps what "
            "it has of the memory of /dev/nvidia0, /dev/nvidia1");
}

TEST(Leftovers, WithoutARankNobodyIsNamed) {
  const Verdict verdict = checked(with_process(std::nullopt));
  ASSERT_EQ(verdict.findings.size(), 1U);
  EXPECT_TRUE(verdict.findings[0].culprits.empty());
}

TEST(Leftovers, WhatWeEndedIsOurDoing) {
  lockstep::Run run = with_process(Rank{1});
  run.acted.push_back({0, kStart + kS, "interrupted", std::nullopt, 0, "SIGINT"});
  EXPECT_TRUE(checked(run).findings.empty());
  EXPECT_EQ(checked(run).outcome, Outcome::kSkipped);
}

TEST(Leftovers, OfADeadRankItIsAConsequence) {
  lockstep::Run run = with_process(Rank{1});
  ends_with_status(run, Rank{1}, 1, kStart + 50 * kMs);
  const auto judged = checkers::judge(run, checkers::all_checkers());
  ASSERT_EQ(judged.findings.size(), 1U);
  EXPECT_EQ(judged.findings[0].code, Code::kRankDied);
  EXPECT_EQ(judged.findings[0].also, (std::vector<Code>{Code::kOrphan, Code::kLeftover}));
}

TEST(Leftovers, ASegmentIsToldWithItsPathAndItsMaker) {
  lockstep::Run run = healthy();
  run.leftovers.push_back({.at_ns = kStart + kS,
                           .kind = "segment",
                           .name = "/dev/shm/torch_1000_7_1",
                           .pid = 1000,
                           .rank = Rank{0},
                           .bytes = 4096});
  const Verdict verdict = checked(run);
  ASSERT_EQ(verdict.findings.size(), 1U);
  EXPECT_EQ(verdict.findings[0].code, Code::kLeftover);
  EXPECT_EQ(verdict.findings[0].headline,
            "/dev/shm/torch_1000_7_1 is left in shared memory, 4096 bytes, and nobody has it");
}

lockstep::Run with_path(const std::string& kind) {
  lockstep::Run run = healthy();
  run.leftovers.push_back(
      {.at_ns = kStart + kS, .kind = kind, .name = "/tmp/it", .pid = 4714, .rank = Rank{1}});
  return run;
}

TEST(Leftovers, ALockOfAnExtensionHoldsUpTheNextJob) {
  const Verdict verdict = checked(with_path("lock"));
  ASSERT_EQ(verdict.findings.size(), 1U);
  EXPECT_EQ(verdict.outcome, Outcome::kFail);
  EXPECT_EQ(verdict.findings[0].code, Code::kLeftover);
  EXPECT_EQ(verdict.findings[0].culprits, RankSet{Rank{1}});
  EXPECT_EQ(verdict.findings[0].headline.rfind("the lock /tmp/it is left, and nobody has it", 0),
            0U);
}

TEST(Leftovers, ATemporaryDirectoryIsANoteUnlessARankWasKilled) {
  lockstep::Run run = with_path("directory");
  const auto judged = checkers::judge(run, checkers::all_checkers());
  ASSERT_EQ(judged.findings.size(), 1U);
  EXPECT_EQ(judged.findings[0].code, Code::kLeftover);
  EXPECT_EQ(judged.findings[0].severity, Severity::kNote);
  EXPECT_EQ(judged.findings[0].headline, "/tmp/it is left, a temporary directory of rank 1");
  EXPECT_EQ(judged.outcome, Outcome::kPass);
  ends_with_signal(run, Rank{1}, 9, kStart + 50 * kMs);
  EXPECT_TRUE(checked(run).findings.empty());
}

TEST(Leftovers, AChildThatNobodyAskedForIsAWarning) {
  const auto judged = checkers::judge(with_zombie(false), checkers::all_checkers());
  ASSERT_EQ(judged.findings.size(), 1U);
  EXPECT_EQ(judged.findings[0].code, Code::kZombie);
  EXPECT_EQ(judged.findings[0].severity, Severity::kWarning);
  EXPECT_EQ(judged.outcome, Outcome::kPass);
  EXPECT_NE(judged.findings[0].headline.find("pid 4713 (gzip)"), std::string::npos);
  EXPECT_TRUE(checked(with_zombie(true)).findings.empty()) << "asked for, late";
}

TEST(Leftovers, ARankThatWasNotWaitedForIsANote) {
  lockstep::Run run = with_zombie(false);
  run.unwaited[0].pid = 1001;
  run.unwaited[0].parent = 1000;
  const auto judged = checkers::judge(run, checkers::all_checkers());
  ASSERT_EQ(judged.findings.size(), 1U);
  EXPECT_EQ(judged.findings[0].code, Code::kZombie);
  EXPECT_EQ(judged.findings[0].severity, Severity::kNote);
  EXPECT_EQ(judged.findings[0].headline,
            "rank 0 (pid 1000) did not wait for rank 1 (pid 1001), which had ended and was a "
            "zombie for 3.0 s");
}

/// Both ranks trained until lockstep ended them; who had started them was killed before.
lockstep::Run orphaned() {
  lockstep::Run run = healthy();
  run.starts.push_back({.at_ns = 1, .role = Role::kOther, .pid = 900});
  run.launcher_ends.push_back({.at_ns = last_event(run) + kMs,
                               .pid = 900,
                               .name = "torchrun",
                               .signal = 10,
                               .ranks = RankSet::all(2),
                               .pids = {1000, 1001}});
  for (ProcessEnd& end : run.ends) {
    end.at_ns = last_event(run) + 10 * kS;
    end.exit_status.reset();
    end.signal = end.our_signal = 9;
    run.acted.push_back({0, end.at_ns - kMs, "KILL", end.rank, end.pid, "the job is over"});
  }
  ProcessEnd command{
      .at_ns = last_event(run) + kMs, .role = Role::kOther, .pid = 900, .signal = 10};
  run.ends.push_back(command);
  return run;
}

TEST(Leftovers, RanksOfALauncherThatWasKilledAreToldWithItsSignal) {
  lockstep::Run run = orphaned();
  run.leftovers = with_process(Rank{0}).leftovers;
  const auto judged = checkers::judge(run, checkers::all_checkers());
  ASSERT_EQ(judged.findings.size(), 1U);
  const Finding& finding = judged.findings.front();
  EXPECT_EQ(finding.code, Code::kOrphan);
  EXPECT_TRUE(finding.culprits.empty());
  EXPECT_EQ(finding.affected, RankSet::all(2));
  EXPECT_EQ(finding.headline,
            "torchrun (pid 900) was killed by SIGUSR1 and left 2 ranks behind: ranks 0,1, which "
            "were ended");
  EXPECT_EQ(finding.evidence.size(), 1U);
}

TEST(Leftovers, RanksThatEndByThemselvesAfterTheirLauncherAreNotLeft) {
  lockstep::Run run = orphaned();
  run.acted.clear();
  for (ProcessEnd& end : run.ends) {
    if (!end.rank)
      continue;
    end.signal = end.our_signal = std::nullopt;
    end.exit_status = 0;
  }
  EXPECT_TRUE(checkers::judge(run, checkers::all_checkers()).findings.empty());
  run.launcher_ends.clear();
  EXPECT_TRUE(checkers::judge(run, checkers::all_checkers()).findings.empty());
}

TEST(Leftovers, WhatRanksRaiseAfterTheirLauncherWasKilledIsNotTheirs) {
  lockstep::Run run = orphaned();
  run.acted.clear();
  for (ProcessEnd& end : run.ends)
    end.our_signal = std::nullopt;
  ends_with_status(run, Rank{0}, 0, last_event(run) + 3 * kS);
  raises(run, Rank{1}, "DistNetworkError: the store is gone", last_event(run) + 2 * kS);
  const auto judged = checkers::judge(run, checkers::all_checkers());
  ASSERT_EQ(judged.findings.size(), 1U);
  EXPECT_EQ(judged.findings[0].code, Code::kRankDied);
  EXPECT_TRUE(judged.findings[0].culprits.empty());
  EXPECT_EQ(
      judged.findings[0].evidence.front().text.rfind("torchrun (pid 900) was killed by SIGUSR1", 0),
      0U);
}

TEST(Leftovers, AWarningHidesNoError) {
  lockstep::Run run = with_zombie(false);
  ends_with_status(run, Rank{1}, 1, kStart + 50 * kMs);
  const auto judged = checkers::judge(run, checkers::all_checkers());
  ASSERT_EQ(judged.findings.size(), 2U);
  EXPECT_EQ(judged.findings[0].code, Code::kRankDied);
  EXPECT_EQ(judged.findings[1].code, Code::kZombie);
}

TEST(Leftovers, AHealthyJobLeavesNothing) { EXPECT_EQ(checked(healthy()).outcome, Outcome::kPass); }

TEST(Leftovers, AnIncompleteJournalDecidesNothing) {
  lockstep::Run run = healthy();
  run.journal_complete = false;
  EXPECT_EQ(checked(run).outcome, Outcome::kUndecided);
}

TEST(NoticedLate, ALauncherThatWaitedForAnotherRankByName) {
  lockstep::Run run = with_zombie(true);
  run.unwaited[0].pid = 1001;  // Rank 1 itself.
  run.unwaited[0].parent = 900;
  run.unwaited[0].parent_waits_for = 1000;
  EXPECT_EQ(
      checkers::noticed_late(run, Rank{1}),
      "its launcher, pid 900 (python), was waiting for rank 0 (pid 1000) and noticed it 3.0 s "
      "later");
  EXPECT_EQ(checkers::noticed_late(run, Rank{0}), "");
  run.unwaited[0].parent_waits_for = -1;  // Whoever ends first.
  EXPECT_EQ(checkers::noticed_late(run, Rank{1}), "");
}

lockstep::Run with_descriptors(std::uint64_t first, std::uint64_t last) {
  lockstep::Run run = healthy();
  for (const std::uint64_t open : {first, last})
    run.descriptors.push_back({.at_ns = kStart + open,
                               .rank = Rank{1},
                               .pid = 1001,
                               .open = open,
                               .limit = 1024,
                               .kinds = {{"file in /dev/shm", open}}});
  return run;
}

TEST(Descriptors, GrowthTowardsTheLimitIsAWarning) {
  const Verdict verdict = checkers::DescriptorGrowth().check(with_descriptors(10, 1000));
  ASSERT_EQ(verdict.findings.size(), 1U);
  EXPECT_EQ(verdict.findings[0].code, Code::kDescriptors);
  EXPECT_EQ(verdict.findings[0].severity, Severity::kWarning);
  EXPECT_EQ(verdict.findings[0].headline,
            "rank 1 has 1000 of 1024 descriptors open; it began with 10");
}

TEST(Descriptors, TheLineThatOpenedTheFilesIsNamed) {
  lockstep::Run run = with_descriptors(10, 1000);
  run.descriptors[1].files = {{"/data/a", 990}};
  EXPECT_TRUE(checkers::DescriptorGrowth().check(run).findings.at(0).sites.empty());
  Process& process = run.processes[1];
  process.sites.push_back({{{"t.py", 9, "t.py", 9, "read", {}}}});
  process.begun.push_back({.what = history::Begins::kFile,
                           .at_ns = kStart,
                           .site = static_cast<std::uint32_t>(process.sites.size() - 1),
                           .count = 512,
                           .path = "/data/a"});
  const Finding finding = checkers::DescriptorGrowth().check(run).findings.at(0);
  ASSERT_EQ(finding.sites.size(), 1U);
  EXPECT_EQ(finding.sites[0].role, "opened");
  EXPECT_EQ(finding.evidence.back().text, "the files that became more were opened at t.py:9");
}

TEST(Descriptors, ManyFromTheBeginningOrFarFromTheLimitAreNone) {
  EXPECT_EQ(checkers::DescriptorGrowth().check(with_descriptors(900, 1000)).outcome,
            Outcome::kPass);
  EXPECT_TRUE(checkers::DescriptorGrowth().check(with_descriptors(900, 1000)).findings.empty());
  EXPECT_TRUE(checkers::DescriptorGrowth().check(with_descriptors(10, 800)).findings.empty());
  EXPECT_EQ(checkers::DescriptorGrowth().check(healthy()).outcome, Outcome::kSkipped);
}

TEST(Descriptors, ADeathByThemIsExplainedByThem) {
  lockstep::Run run = with_descriptors(10, 1024);
  ends_with_status(run, Rank{1}, 1, kStart + 50 * kMs);
  run.raised.push_back({.at_ns = kStart + 49 * kMs,
                        .rank = Rank{1},
                        .pid = 1001,
                        .text = "OSError: [Errno 24] Too many open files"});
  const auto judged = checkers::judge(run, checkers::all_checkers());
  ASSERT_EQ(judged.findings.size(), 1U);
  EXPECT_EQ(judged.findings[0].code, Code::kRankDied);
  EXPECT_EQ(judged.findings[0].evidence[0].text,
            "rank 1 had 1024 of 1024 open: 1024 file in /dev/shm");
}

lockstep::Run with_late_devices(std::int32_t pid) {
  lockstep::Run run = healthy();
  LateDevices late{kStart, pid, "unset", "\"0,1\"", "\"1\"", {}};
  late.site.frames.push_back({"/app/train.py", 9, "train.py", 12, "main", {}});
  run.late_devices.push_back(late);
  return run;
}

TEST(DeviceChoice, ARankThatChoosesThemTooLateIsTold) {
  const Verdict verdict = checkers::DeviceChoice().check(with_late_devices(1001));
  ASSERT_EQ(verdict.findings.size(), 1U);
  EXPECT_EQ(verdict.outcome, Outcome::kPass) << "a warning";
  const Finding& finding = verdict.findings[0];
  EXPECT_EQ(finding.code, Code::kDevices);
  EXPECT_EQ(finding.severity, Severity::kWarning);
  EXPECT_EQ(finding.culprits, RankSet{Rank{1}});
  EXPECT_EQ(finding.headline,
            "rank 1 changed CUDA_VISIBLE_DEVICES to \"1\" at train.py:12 after CUDA had been "
            "initialised: it keeps \"0,1\"");
}

TEST(DeviceChoice, ALauncherChoosesForItsChildren) {
  EXPECT_TRUE(checkers::DeviceChoice().check(with_late_devices(999)).findings.empty());
  EXPECT_EQ(checkers::DeviceChoice().check(lockstep::Run{}).outcome, Outcome::kSkipped);
}

lockstep::Run on_gpus(std::vector<Device> devices) {
  lockstep::Run run = healthy();
  for (std::size_t i = 0; i < devices.size(); ++i)
    run.processes[i].device = devices[i];
  return run;
}

TEST(DeviceChoice, ThatAllRanksAreOnTheFirstOfTwoIsTold) {
  const Verdict verdict = checkers::DeviceChoice().check(on_gpus({{0, 2, "aa"}, {0, 2, "aa"}}));
  ASSERT_EQ(verdict.findings.size(), 1U);
  EXPECT_EQ(verdict.outcome, Outcome::kPass) << "a warning";
  const Finding& finding = verdict.findings[0];
  EXPECT_EQ(finding.code, Code::kDevices);
  EXPECT_EQ(finding.headline, "ranks 0,1 work on one GPU, and each of them sees 2");
  EXPECT_TRUE(finding.culprits.empty());
  EXPECT_EQ(finding.evidence.at(1).text, "rank 1: pid 1001 on cuda:0 of 2, GPU aa");
}

TEST(DeviceChoice, ThatTheyShareWhatThereIsIsNot) {
  const auto silent = [](std::vector<Device> devices) {
    return checkers::DeviceChoice().check(on_gpus(std::move(devices))).findings.empty();
  };
  EXPECT_TRUE(silent({{0, 2, "aa"}, {1, 2, "bb"}}));
  EXPECT_TRUE(silent({{0, 1, "aa"}, {0, 1, "bb"}})) << "each sees its own only";
  EXPECT_TRUE(silent({{0, 1, "aa"}, {0, 1, "aa"}})) << "there is one";
  EXPECT_TRUE(silent({{1, 2, "bb"}, {1, 2, "bb"}})) << "somebody chose it";
  EXPECT_TRUE(silent({{0, 2, "aa"}})) << "of the other nothing is known";
  lockstep::Run two_hosts = on_gpus({{0, 2, "aa"}, {0, 2, "aa"}});
  two_hosts.processes[1].boot_id = "another";
  EXPECT_TRUE(checkers::DeviceChoice().check(two_hosts).findings.empty());
}

}  // namespace
}  // namespace lockstep::testing
