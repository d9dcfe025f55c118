// Goal: of ranks that failed under `lockstep run`, who failed for a reason of its own: by what it
// printed, how it aborted and what its launcher did.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

#include "checkers/exit/rank_failed.h"
#include "harness/model/ending.h"
#include "tests/support/typed_run.h"

namespace lockstep::testing {
namespace {

Verdict check(const lockstep::Run& run) { return checkers::RankFailed().check(run); }

lockstep::Run launched(const std::vector<Row>& rows, std::int32_t status) {
  lockstep::Run run = make_run(rows);
  run.starts.push_back({0, kStart / 8, Role::kOther, std::nullopt, 900});
  ProcessEnd end;
  end.at_ns = stall_ns(run) + 9000 * kMs;
  end.role = Role::kOther;
  end.pid = 900;
  end.exit_status = status;
  run.ends.push_back(end);
  return run;
}

const Row kSome = times(2, {all_reduce("dp", 8)});

TEST(RankFailures, TheExceptionThatWasPrintedIsNamedWithItsLine) {
  lockstep::Run run = make_run({kSome, kSome});
  const std::uint64_t at_ns = stall_ns(run);
  Raised raised{.at_ns = at_ns, .rank = Rank{1}, .pid = 1001, .text = "ValueError: bad batch"};
  raised.raised_at.frames = {{"", 0, "t.py", 9, "load", {}}};
  run.raised.push_back(raised);
  EXPECT_TRUE(check(run).findings.empty()) << "caught: it ended well";
  ends_with_status(run, Rank{1}, 1, at_ns + kMs);
  const Verdict verdict = check(run);
  ASSERT_EQ(verdict.findings.size(), 1U);
  EXPECT_EQ(verdict.findings[0].headline, "rank 1 raised: ValueError: bad batch at t.py:9");
  EXPECT_EQ(verdict.findings[0].culprits, RankSet{Rank{1}});
  EXPECT_EQ(verdict.findings[0].sites.front().line, 9);
}

TEST(RankFailures, ACommandThatIsARankItselfHidesTheFailureOfAnother) {
  lockstep::Run run = make_run({kSome, kSome});
  run.starts.push_back({0, kStart / 8, Role::kOther, std::nullopt, 1000});
  raises(run, Rank{1}, "ValueError: bad batch", stall_ns(run));
  const Verdict verdict = check(run);
  ASSERT_EQ(verdict.findings.size(), 1U);
  EXPECT_EQ(verdict.findings[0].culprits, RankSet{Rank{1}});
  EXPECT_THAT(verdict.findings[0].also, ::testing::Contains(Code::kHiddenFailure));
}

TEST(RankFailures, OfAnEndThatIsNotKnownTheExceptionCountsWhereTheCommandFailed) {
  const auto culprits_of = [](std::int32_t status, bool last) {
    lockstep::Run run = launched({kSome, kSome}, status);
    raises(run, Rank{1}, "ValueError: bad batch", last ? stall_ns(run) : kStart);
    for (ProcessEnd& end : run.ends) {
      if (end.role == Role::kRank)
        end.exit_status.reset();
    }
    const Verdict verdict = check(run);
    return verdict.findings.empty() ? RankSet{} : verdict.findings[0].culprits;
  };
  EXPECT_EQ(culprits_of(1, true), RankSet{Rank{1}});
  EXPECT_EQ(culprits_of(0, true), RankSet{}) << "it may have been caught";
  EXPECT_EQ(culprits_of(1, false), RankSet{}) << "it went on";
}

/// The last call of ranks 0 and 2 has failed, and rank 1 has not come to it: its connections were
/// closed when it fell over.
lockstep::Run two_saw_a_call_fail() {
  const Row more = kSome + Row{all_reduce("dp", 8).pending()};
  lockstep::Run run = make_run({more, kSome, more});
  for (const Rank rank : {Rank{0}, Rank{2}}) {
    Collective& call = process_of(run, rank).collectives.back();
    call.completed_ns = call.issued_ns + kMs;
    call.failed = true;
  }
  return run;
}

TEST(RankFailures, WordsOfItsOwnForACallThatFailedAreNoReasonOfItsOwn) {
  for (const char* const last : {"ValueError: bad batch", "TrainingError: step 2 failed"}) {
    lockstep::Run run = two_saw_a_call_fail();
    raises(run, Rank{0}, "TrainingError: step 2 failed", stall_ns(run));
    raises(run, Rank{2}, "TrainingError: step 2 failed", stall_ns(run));
    raises(run, Rank{1}, last, stall_ns(run) + 2000 * kMs);
    const Verdict verdict = check(run);
    ASSERT_EQ(verdict.findings.size(), 1U);
    EXPECT_EQ(verdict.findings[0].culprits, RankSet{Rank{1}}) << last;
  }
}

TEST(RankFailures, WhoWentOnAfterACallThatFailedHasAReasonOfItsOwn) {
  lockstep::Run run = two_saw_a_call_fail();
  Process& process = process_of(run, Rank{0});
  Collective again = process.collectives.front();
  again.issued_ns = process.collectives.back().completed_ns.value() + kMs;
  again.completed_ns = again.issued_ns + kMs;
  process.collectives.push_back(again);
  raises(run, Rank{0}, "ValueError: bad batch", stall_ns(run));
  EXPECT_EQ(check(run).findings.at(0).culprits, RankSet{Rank{0}});
}

TEST(RankFailures, ALimitOfItsOwnIsNoSilentPeer) {
  lockstep::Run run = make_run({{all_reduce("dp", 2)}, {all_reduce("dp", 2)}});
  const std::uint64_t at_ns = stall_ns(run);
  raises(run, Rank{1}, "TimeoutError: Timed out reading shard 7", at_ns);
  EXPECT_EQ(check(run).findings.at(0).culprits, RankSet{Rank{1}});
}

TEST(RankFailures, ALostWorkerOfADataLoaderIsNoPeer) {
  const auto culprits_of = [](std::initializer_list<const char*> files) {
    lockstep::Run run = make_run({{all_reduce("dp", 2)}, {all_reduce("dp", 2)}});
    raises(run, Rank{1}, "ConnectionResetError: [Errno 104] Connection reset by peer",
           stall_ns(run));
    for (const char* const file : files)
      run.raised.back().raised_at.frames.push_back({"", 0, file, 9, "get", {}});
    return check(run).findings.at(0).culprits;
  };
  constexpr const char* kLoader = "/py/site-packages/torch/utils/data/dataloader.py";
  constexpr const char* kCall = "/py/site-packages/torch/distributed/distributed_c10d.py";
  EXPECT_TRUE(culprits_of({"t.py"}).empty());
  EXPECT_EQ(culprits_of({"/py/connection.py", kLoader, "t.py"}), RankSet{Rank{1}});
  EXPECT_TRUE(culprits_of({kCall, "sampler.py", kLoader, "t.py"}).empty())
      << "a sampler may talk to other ranks";
}

TEST(RankFailures, WhoLeavesWithTheStoreIsNamed) {
  const auto without_store = [](std::uint64_t rank_0_ends_ns) {
    lockstep::Run run = make_run({{all_reduce("dp", 2)}, {all_reduce("dp", 2)}});
    const std::uint64_t at_ns = stall_ns(run);
    raises(run, Rank{1},
           "torch.distributed.DistNetworkError: Failed to recv, got 0 bytes. Did the remote server "
           "shutdown or crash?",
           at_ns);
    ends_with_status(run, Rank{0}, 0, rank_0_ends_ns);
    return check(run).findings.at(0);
  };
  const Finding left = without_store(kStart + 50 * kMs);
  EXPECT_EQ(left.code, Code::kLeftEarly);
  EXPECT_EQ(left.culprits, RankSet{Rank{0}});
  EXPECT_NE(left.evidence.at(1).text.find("with it went the store; rank 1 raised"),
            std::string::npos);
  const Finding later = without_store(kStart + 60'000 * kMs);
  EXPECT_EQ(later.code, Code::kRankDied);
  EXPECT_TRUE(later.culprits.empty()) << "rank 1 only found it gone";
}

TEST(RankFailures, WhatTheLauncherEndedIsAConsequence) {
  lockstep::Run run = launched({kSome, kSome + Row{all_reduce("dp", 8).failed()}, kSome}, 1);
  ends_with_status(run, Rank{1}, 1, stall_ns(run) + 2 * kMs);  // It lost rank 0, which left early.
  ends_with_signal(run, Rank{2}, 15, stall_ns(run) + 3 * kMs);
  EXPECT_EQ(check(run).findings.front().culprits, RankSet{Rank{0}});
  ends_with_status(run, Rank{0}, 1, stall_ns(run) + 2 * kMs);
  EXPECT_EQ(check(run).findings.front().culprits, RankSet{Rank{0}});
  // Without a launcher nobody of the job sends signals.
  lockstep::Run alone = make_run({kSome, kSome, kSome});
  ends_with_status(alone, Rank{1}, 1, stall_ns(alone) + 2 * kMs);
  ends_with_signal(alone, Rank{2}, 15, stall_ns(alone) + kMs);
  EXPECT_EQ(check(alone).findings.front().culprits, RankSet{Rank{2}});
}

TEST(RankFailures, AnAttemptThatWasRepeatedIsOver) {
  lockstep::Run run = launched({kSome, kSome}, 0);
  add_failed_attempt(run);
  EXPECT_TRUE(check(run).findings.empty());
}

TEST(RankFailures, AFailureHiddenByTheLauncherIsSaidToBe) {
  for (const std::int32_t status : {0, 1}) {
    lockstep::Run run = launched({kSome, kSome}, status);
    ends_with_status(run, Rank{1}, 3, stall_ns(run));
    const Verdict verdict = check(run);
    ASSERT_EQ(verdict.findings.size(), 1U);
    EXPECT_EQ(verdict.findings[0].code, Code::kRankDied);
    EXPECT_EQ(verdict.findings[0].also.size(), status == 0 ? 1U : 0U);
  }
}

TEST(RankFailures, WhatAProgramSaysOfItsArgumentsIsNoRanksFault) {
  lockstep::Run run = launched({{}, {}}, 1);
  run.plan.command = {"python", "-m", "torch.distributed.launch", "t.py"};
  ends_with_status(run, Rank{0}, 2, kStart);
  ends_with_signal(run, Rank{1}, 15, kStart + kMs);  // Before it came so far.
  const Finding finding = check(run).findings.front();
  EXPECT_EQ(finding.code, Code::kRankDied);
  EXPECT_TRUE(finding.culprits.empty());
  EXPECT_EQ(finding.affected, RankSet::all(2));
  EXPECT_NE(finding.help.find("--local-rank"), std::string::npos);
  run.plan.command = {"torchrun", "t.py"};
  EXPECT_EQ(check(run).findings.front().help.find("--local-rank"), std::string::npos);
}

TEST(RankFailures, WhoDiffersFromProcess0OrWaitedInVainIsNotConvicted) {
  const Row row = times(3, {all_reduce("dp", 8)});
  for (const std::string text :
       {"RuntimeError: [1]: params[2] in this process with sizes [3, 8] appears not to match sizes "
        "of the same param in process 0.",
        "RuntimeError: Operation timed out!"}) {
    lockstep::Run run = make_run({row, row, row});
    raises(run, Rank{1}, text, kStart + 199 * kMs);
    ASSERT_EQ(check(run).findings.size(), 1U);
    EXPECT_TRUE(check(run).findings[0].culprits.empty()) << text;
  }
}

TEST(RankFailures, ArgumentsThatOneRankRefusedAreItsOwn) {
  lockstep::Run run = make_run({{}, {}});
  ends_with_status(run, Rank{1}, 2, kStart);
  ends_with_signal(run, Rank{0}, 15, kStart + kMs);
  for (ProcessEnd& end : run.ends) {
    if (end.rank == Rank{0})
      end.our_signal = 15;  // It waited for rank 1, and we had to end it.
  }
  const Finding finding = check(run).findings.front();
  EXPECT_EQ(finding.headline, "rank 1 exited with status 2");
  EXPECT_EQ(finding.culprits, RankSet{Rank{1}});
}

/// Rank 1 aborted as std::terminate does, and said what it says.
lockstep::Run terminated(const Row& row, const std::string& said) {
  lockstep::Run run = make_run({row, row});
  ends_with_signal(run, Rank{1}, 6, kStart + 200 * kMs);
  run.raised.push_back({.at_ns = kStart + 199 * kMs,
                        .rank = Rank{1},
                        .pid = process_of(run, Rank{1}).pid,
                        .text = said});
  return run;
}

constexpr const char* kTerminate = "terminate called without an active exception";

TEST(RankFailures, WhoWaitedForAnotherInAMonitoredBarrierIsInnocent) {
  const Row row = times(3, {all_reduce("dp", 8)});
  lockstep::Run run = make_run({row, row, row});
  for (const auto& [rank, text] :
       {std::pair{0, "[Rank 0]: Rank 2 failed to pass monitoredBarrier in 6000 ms"},
        std::pair{
            1,
            "Rank 1 successfully reached monitoredBarrier, but received errors while "
            "waiting for send/recv from rank 0. Please check rank 0 logs for faulty rank."}}) {
    raises(run, Rank{rank}, std::string("RuntimeError: ") + text,
           kStart + (200 - static_cast<std::uint64_t>(rank)) * kMs);
  }
  const Verdict verdict = check(run);
  ASSERT_EQ(verdict.findings.size(), 1U);
  EXPECT_TRUE(verdict.findings[0].culprits.empty());
}

TEST(RankFailures, WhatAllEndedAlikeOfIsNotOneRanksFault) {
  for (const auto& [status, culprits] : {std::pair{1, RankSet{}}, std::pair{3, RankSet{Rank{1}}}}) {
    lockstep::Run run = make_run({kSome, kSome});
    raises(run, Rank{1}, "FileNotFoundError: labels.txt", stall_ns(run));
    ends_with_status(run, Rank{0}, status, stall_ns(run) + 2 * kMs);  // Of what, nobody saw.
    EXPECT_EQ(check(run).findings.at(0).culprits, culprits) << status;
  }
}

/// All three raise on one line, with what each says there.
Finding all_raise(const std::array<const char*, 3>& texts) {
  lockstep::Run run = make_run({kSome, kSome, kSome});
  for (const Rank rank : RankSet::all(3)) {
    const auto after = static_cast<std::uint64_t>(rank.value) * kMs;
    raises(run, rank, texts[static_cast<std::size_t>(rank.value)], stall_ns(run) + after);
    run.raised.back().raised_at.frames = {{"", 0, "t.py", 12, "main", {}}};
  }
  return check(run).findings.at(0);
}

TEST(RankFailures, OneExceptionWithOtherNumbersIsOneMistake) {
  const Finding same = all_raise({"KeyError: 'row 3'", "KeyError: 'row 14'", "KeyError: 'row 15'"});
  EXPECT_EQ(same.headline, "ranks 0-2 raised: KeyError: 'row 3' at t.py:12");
  EXPECT_TRUE(same.culprits.empty());
  EXPECT_EQ(all_raise({"ValueError: 1", "KeyError: 2", "KeyError: 2"}).culprits, RankSet{Rank{0}});
}

TEST(RankFailures, WhoseArgumentsALineRefusesFailsByItself) {
  const Finding finding = all_raise({"ValueError: a list must be given on the source rank",
                                     "ValueError: a list must not be given on other ranks",
                                     "RuntimeError: Connection closed by peer"});
  EXPECT_EQ(finding.culprits, (RankSet{Rank{0}, Rank{1}}));
  EXPECT_EQ(finding.affected, RankSet{Rank{2}});
}

TEST(RankFailures, WhoStandsAgainstMostInWhatAllSayOfEachOtherIsNamed) {
  const auto has = [](const char* what) { return std::string("RuntimeError: DDP: Rank ") + what; };
  const std::string zero = has("0 has 4 params, while rank 2 has inconsistent 2 params.");
  const std::string one = has("1 has 4 params, while rank 2 has inconsistent 2 params.");
  const std::string two = has("2 has 2 params, while rank 0 has inconsistent 4 params.");
  const Finding odd = all_raise({zero.c_str(), one.c_str(), two.c_str()});
  EXPECT_EQ(odd.culprits, RankSet{Rank{2}});
  EXPECT_EQ(odd.confidence, Confidence::kLikely);
  const std::string other = has("1 has 3 params, while rank 0 has inconsistent 4 params.");
  EXPECT_TRUE(all_raise({zero.c_str(), other.c_str(), two.c_str()}).culprits.empty());
}

TEST(RankFailures, WhoWroteToAPeerThatWasGoneFollowedIt) {
  const Row open = kSome + Row{all_reduce("dp", 8).async().pending()};
  for (const auto& [row, culprit] : {std::pair{open, Rank{1}}, std::pair{kSome, Rank{0}}}) {
    lockstep::Run run = make_run({row, row});
    ends_with_signal(run, Rank{0}, 13, stall_ns(run));  // Seen before what it came of.
    ends_with_signal(run, Rank{1}, 9, stall_ns(run) + kMs);
    EXPECT_EQ(check(run).findings.at(0).culprits, RankSet{culprit});
  }
}

/// In the abort of rank 1 as lockstep finds it, seen from below.
lockstep::Run aborted(const std::vector<std::string>& callers_of_abort,
                      const std::string& said = "server closed the connection") {
  lockstep::Run run = terminated(times(3, {all_reduce("dp", 8)}), said);
  StackSample stack{.at_ns = kStart + 150 * kMs,
                    .rank = Rank{1},
                    .pid = process_of(run, Rank{1}).pid,
                    .frames = {{.function = "nanosleep"}, {.function = "abort"}}};
  for (const std::string& function : callers_of_abort)
    stack.frames.push_back({.function = function});
  stack.frames.push_back({.module = "train", .file = "train.cc", .line = 12, .function = "load"});
  run.stacks.push_back(std::move(stack));
  return run;
}

const std::vector<std::string> kTeardown{"std::terminate()",
                                         "__gxx_personality_v0",
                                         "pthread_exit",
                                         "PyEval_AcquireThread",
                                         "c10d::ProcessGroupGloo::AsyncWork::~AsyncWork()",
                                         "c10d::ProcessGroupGloo::runLoop(int)"};

TEST(RankFailures, AbortInGloosTeardownIsNamed) {
  lockstep::Run of_another_launcher = aborted(kTeardown, kTerminate);  // Its output is not ours.
  of_another_launcher.raised.clear();
  const lockstep::Run without_a_stack = terminated(times(3, {all_reduce("dp", 8)}), kTerminate);
  for (const lockstep::Run& run :
       {aborted(kTeardown, kTerminate), of_another_launcher, without_a_stack}) {
    const Verdict verdict = check(run);
    ASSERT_EQ(verdict.findings.size(), 1U);
    const Finding& finding = verdict.findings[0];
    EXPECT_EQ(finding.code, Code::kRankDied);
    EXPECT_EQ(finding.culprits, RankSet{Rank{1}});
    EXPECT_EQ(finding.headline,
              "rank 1 was ended by SIGABRT in Gloo's teardown: its process group outlived Python");
    EXPECT_NE(finding.help.find("destroy_process_group"), std::string::npos);
  }
}

TEST(RankFailures, GloosThreadThatWaitsForItselfIsTheSameTeardown) {
  const std::string said(kJoinedItself);
  const std::vector<std::string> stack{
      "std::terminate()", "std::__throw_system_error(int)", "std::thread::join()",
      "c10d::ProcessGroupGloo::~ProcessGroupGloo()", "c10d::ProcessGroupGloo::runLoop(int)"};
  const Row whole = times(3, {all_reduce("dp", 8)});
  lockstep::Run of_another_launcher = aborted(stack, said);  // Its output is not ours.
  of_another_launcher.raised.clear();
  for (const lockstep::Run& run : {aborted(stack, said), terminated(whole, said)}) {
    const Finding finding = check(run).findings.at(0);
    EXPECT_EQ(finding.headline,
              "rank 1 was ended by SIGABRT in Gloo's teardown: its process group outlived Python");
    EXPECT_NE(finding.help.find("destroy_process_group"), std::string::npos);
  }
  const Row open = whole + Row{all_reduce("dp", 8).async().pending()};
  for (const lockstep::Run& run :
       {aborted({"std::terminate()", "std::thread::join()", "writer_main"}, said),
        terminated(open, said), terminated({}, said)})
    EXPECT_EQ(check(run).findings.at(0).headline.find("teardown"), std::string::npos);
}

TEST(RankFailures, WhoLeftTooEarlyDidSoBeforeItsTeardown) {
  lockstep::Run run = aborted(kTeardown, kTerminate);
  raises(run, Rank{0},
         "torch.distributed.DistNetworkError: Did the remote server shutdown or crash?",
         stall_ns(run));
  EXPECT_EQ(check(run).findings.at(0).code, Code::kRankDied) << "rank 0 has the store";
  run = make_run({{all_reduce("dp", 2)}, {all_reduce("dp", 2)}});
  raises(run, Rank{1},
         "torch.distributed.DistNetworkError: Did the remote server shutdown or crash?",
         stall_ns(run));
  raises(run, Rank{0}, kTerminate, kStart + 50 * kMs);
  ends_with_signal(run, Rank{0}, 6, kStart + 50 * kMs);
  const Finding left = check(run).findings.at(0);
  EXPECT_EQ(left.code, Code::kLeftEarly);
  EXPECT_EQ(left.also, std::vector<Code>{Code::kRankDied});
  EXPECT_EQ(left.headline, "rank 0 ended while others still need it");
  EXPECT_NE(left.evidence.at(2).text.find("with it went the store; rank 1 raised"),
            std::string::npos);
  EXPECT_EQ(left.consequences, 1U);
}

TEST(RankFailures, OtherAbortsAreNotThatOfGloosTeardown) {
  const Row whole = times(3, {all_reduce("dp", 8)});
  const Row open = whole + Row{all_reduce("dp", 8).async().pending()};
  for (const lockstep::Run& run :
       {terminated(whole, "bad alloc"), terminated({}, kTerminate), terminated(open, kTerminate)}) {
    const Verdict verdict = check(run);
    ASSERT_EQ(verdict.findings.size(), 1U);
    EXPECT_EQ(verdict.findings[0].headline.find("teardown"), std::string::npos);
    EXPECT_EQ(verdict.findings[0].headline.find("without an active"), std::string::npos);
    EXPECT_TRUE(verdict.findings[0].help.empty());
  }
}

TEST(RankFailures, AStackElsewhereIsNotThatOfGloosTeardown) {
  for (const lockstep::Run& run :
       {aborted({"std::terminate()", "std::thread::~thread()"}, kTerminate),
        aborted({"std::terminate()", "pthread_exit", "writer_main"}, kTerminate),
        aborted({"std::terminate()", "c10d::ProcessGroupGloo::runLoop(int)"}, kTerminate)}) {
    const Verdict verdict = check(run);
    ASSERT_EQ(verdict.findings.size(), 1U);
    EXPECT_EQ(verdict.findings[0].headline, "rank 1 was killed by SIGABRT");
    EXPECT_TRUE(verdict.findings[0].help.empty());
  }
}

TEST(RankFailures, WhatWasRaisedComesBeforeTheTeardownThatFollowed) {
  lockstep::Run run = aborted(kTeardown, kTerminate);
  run.raised.insert(run.raised.begin(), {.at_ns = kStart + 190 * kMs,
                                         .rank = Rank{1},
                                         .pid = process_of(run, Rank{1}).pid,
                                         .text = "ValueError: no such file"});
  const Verdict verdict = check(run);
  ASSERT_EQ(verdict.findings.size(), 1U);
  EXPECT_EQ(verdict.findings[0].headline, "rank 1 raised: ValueError: no such file");
}

TEST(RankFailures, WhatAbortedItIsNamedByItsLine) {
  for (const auto& callers : {std::vector<std::string>{"std::terminate()", "__cxa_throw"}, {}}) {
    const Finding finding = check(aborted(callers)).findings.front();
    ASSERT_EQ(finding.sites.size(), 1U);
    EXPECT_EQ(finding.sites[0].line, 12);
    EXPECT_EQ(finding.sites[0].role, "raised");
    EXPECT_NE(finding.headline.find(" at train.cc:12"), std::string::npos);
  }
}

TEST(RankFailures, WhatLeftTheLineThatThrewHasNoLine) {
  const auto in_rethrow = aborted({"std::terminate()", "__cxa_rethrow"});
  lockstep::Run of_another_process = aborted({});
  of_another_process.stacks[0].pid = 1;
  for (const lockstep::Run& run : {in_rethrow, of_another_process})
    EXPECT_TRUE(check(run).findings.front().sites.empty());
}

}  // namespace
}  // namespace lockstep::testing
