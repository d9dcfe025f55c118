// Goal: of ranks that a signal ended, nobody is blamed where a launcher, a time limit or a
// scheduler ended all of them, and nothing is said where a program ends ranks that it needs no
// more.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "checkers/exit/rank_failed.h"
#include "checkers/judge.h"
#include "tests/support/typed_run.h"

namespace lockstep::testing {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

constexpr std::int32_t kLauncher = 900;
const std::string kSender = "pid 900 (torchrun)";
const Row kSome = times(2, {all_reduce("dp", 8).at("t.py", 9)});

/// Rank 1 waits for rank 0, or none for any, when their launcher ends them, and then itself.
lockstep::Run ended(const std::string& sender, std::int32_t status_of_launcher,
                    const Row& of_rank_1 = kSome) {
  lockstep::Run run = make_run({kSome, of_rank_1});
  run.starts.push_back({0, kStart / 8, Role::kOther, std::nullopt, kLauncher});
  const std::uint64_t limit_ns = stall_ns(run) + 20'000 * kMs;
  for (const Rank rank : {Rank{0}, Rank{1}})
    ends_with_signal(run, rank, 15, limit_ns + (1 + static_cast<unsigned>(rank.value)) * kMs);
  for (ProcessEnd& end : run.ends)
    end.sender = end.signal ? sender_of(sender) : std::nullopt, end.asked_ns = end.at_ns - 2 * kMs;
  ProcessEnd end;
  end.at_ns = limit_ns + 50 * kMs;
  end.role = Role::kOther;
  end.pid = kLauncher;
  end.exit_status = status_of_launcher;
  run.ends.push_back(end);
  return run;
}

/// It was no launcher that ended this one.
void by_somebody_else(lockstep::Run& run, Rank rank) {
  for (ProcessEnd& end : run.ends) {
    if (end.rank == rank)
      end.sender.reset();
  }
}

Verdict check(const lockstep::Run& run) { return checkers::RankFailed().check(run); }

TEST(EndedRanks, WhatAProgramEndsBeforeItEndsWellIsNoFailure) {
  EXPECT_TRUE(check(ended(kSender, 0)).findings.empty());
  EXPECT_FALSE(check(ended("", 0)).findings.empty()) << "somebody else did it";
}

TEST(EndedRanks, WhoeverEndsAllOfThemNobodyIsBlamed) {
  lockstep::Run run = ended(kSender, 124);
  run.raised.push_back({.pid = kLauncher, .text = "SignalException: Process 900 got signal: 15"});
  const Finding finding = check(run).findings.at(0);
  EXPECT_EQ(finding.code, Code::kRankDied);
  EXPECT_TRUE(finding.culprits.empty());
  EXPECT_EQ(finding.headline, "ranks 0,1 were killed by SIGTERM");
  EXPECT_THAT(texts_of(finding.evidence), Contains("pid 900 (torchrun) sent the signal"));
  EXPECT_THAT(texts_of(finding.evidence), Contains(HasSubstr("Process 900 got signal: 15")));
  EXPECT_THAT(texts_of(finding.evidence), Contains("rank 0 ended after all_reduce #1 at t.py:9"));
  const Finding by_somebody = check(ended("", 124)).findings.at(0);
  EXPECT_TRUE(by_somebody.culprits.empty());
  EXPECT_EQ(by_somebody.headline, finding.headline);
}

TEST(EndedRanks, WhatALauncherRaisedBeforeItEndedThemIsWhatIsSaid) {
  lockstep::Run run = ended(kSender, 1);
  run.raised.push_back({.pid = kLauncher, .text = "OSError: address already in use"});
  EXPECT_EQ(check(run).findings.at(0).headline,
            "pid 900 (torchrun) raised: OSError: address already in use; it ended ranks 0,1");
}

TEST(EndedRanks, WhoeverFailedBeforeTheLauncherEndedTheOthersIsNamed) {
  lockstep::Run run = ended(kSender, 1);
  by_somebody_else(run, Rank{0});
  EXPECT_EQ(check(run).findings.at(0).culprits, RankSet{Rank{0}});
  EXPECT_EQ(check(run).findings.at(0).headline, "rank 0 was killed by SIGTERM");
}

TEST(EndedRanks, WhomTheLauncherLeftOutHadGoneBefore) {
  const auto judged = [](const Row& of_rank_1, std::uint64_t after_ms) {
    lockstep::Run run = ended(kSender, 1, of_rank_1);
    by_somebody_else(run, Rank{1});
    run.ends[1].signal = 9;
    run.ends[1].at_ns = run.ends[0].asked_ns + after_ms * kMs;
    return checkers::judge(run, checkers::all_checkers()).findings.at(0);
  };
  EXPECT_EQ(judged(kSome, 200).headline, "rank 1 was killed by SIGKILL") << "seen late";
  EXPECT_EQ(judged(kSome, 200).culprits, RankSet{Rank{1}});
  EXPECT_TRUE(judged(kSome, 5'000).culprits.empty()) << "it lived when the others were ended";
  const Row waits = kSome + Row{all_reduce("dp", 8).at("t.py", 12).pending()};
  EXPECT_FALSE(judged(waits, 200).culprits.contains(Rank{1})) << "it may be because of the others";
}

TEST(EndedRanks, WhoeverFailsBecauseAnotherIsEndedIsNotTheFirst) {
  const Row waits = kSome + Row{all_reduce("dp", 8).at("t.py", 12).pending()};
  lockstep::Run run = ended(kSender, 1, waits);
  run.ends[1].signal.reset();
  run.ends[1].exit_status = 1;
  run.ends[1].sender.reset();
  run.ends[1].at_ns += 200 * kMs;
  const std::uint64_t asked_ns = run.ends[0].asked_ns;
  const auto judged = [&](std::uint64_t at_ns) {
    run.raised = {
        {.at_ns = at_ns, .rank = Rank{1}, .pid = run.ends[1].pid, .text = "RuntimeError: closed"}};
    return checkers::judge(run, checkers::all_checkers()).findings.at(0).code;
  };
  EXPECT_EQ(judged(asked_ns + kMs / 2), Code::kAbsentRank)
      << "before rank 0 was seen to have ended";
  EXPECT_EQ(judged(asked_ns - kMs), Code::kRankDied);
}

TEST(EndedRanks, WhoeverWasOnItsWayOutBeforeTheOthersWereEndedFailedFirst) {
  lockstep::Run run = ended(kSender, 1);
  by_somebody_else(run, Rank{1});
  run.ends[1].signal.reset();
  run.ends[1].exit_status = 1;
  const std::uint64_t asked_ns = run.ends[0].asked_ns;
  run.ends[1].at_ns = asked_ns + 17 * kMs;  // Seen late; mp.spawn told of it, without a time.
  run.raised = {{.at_ns = run.ends[1].at_ns,
                 .rank = Rank{1},
                 .pid = run.ends[1].pid,
                 .text = "ValueError: no such label: 7"}};
  const auto judged = [&](std::uint64_t closed_ns) {
    process_of(run, Rank{1}).closed_ns = closed_ns;
    return checkers::judge(run, checkers::all_checkers()).findings.at(0);
  };
  EXPECT_EQ(judged(asked_ns - kMs / 2).headline, "rank 1 raised: ValueError: no such label: 7");
  EXPECT_EQ(judged(asked_ns - kMs / 2).culprits, RankSet{Rank{1}});
  EXPECT_TRUE(judged(asked_ns + kMs / 2).culprits.empty()) << "it may be because of the others";
  EXPECT_TRUE(judged(0).culprits.empty()) << "not known";

  run.ends[1].signal = 6;
  run.ends[1].exit_status.reset();
  run.stacks = {stack_of(run, Rank{1}, {"abort", "std::terminate()", "pthread_exit"})};
  run.stacks[0].at_ns = asked_ns - kMs / 2;
  EXPECT_EQ(judged(0).culprits, RankSet{Rank{1}}) << "it aborted on its way";
  run.stacks[0].at_ns = asked_ns + kMs / 2;
  EXPECT_TRUE(judged(0).culprits.empty());
}

TEST(EndedRanks, WhoeverAbortsInGloosTeardownWhenAskedToEndHasEndedAsAsked) {
  const auto aborts = [](std::int32_t status_of_launcher, std::vector<std::string> frames,
                         std::int64_t after_ms) {
    lockstep::Run run = ended(kSender, status_of_launcher);
    ProcessEnd& end = run.ends[1];
    end.signal = 6;
    end.at_ns = end.asked_ns + 500 * kMs;
    frames.insert(frames.begin(), "abort");
    run.stacks = {stack_of(run, Rank{1}, frames)};
    run.stacks[0].at_ns = end.asked_ns + static_cast<std::uint64_t>(after_ms) * kMs;
    return run;
  };
  const std::vector<std::string> teardown{"std::terminate()", "pthread_exit",
                                          "c10d::ProcessGroupGloo::runLoop(int)"};
  EXPECT_TRUE(check(aborts(0, teardown, 20)).findings.empty());
  EXPECT_EQ(check(aborts(0, teardown, -20)).findings.at(0).culprits, RankSet{Rank{1}})
      << "it was on its way out by itself";
  const std::vector<std::string> own{"main"};
  EXPECT_EQ(check(aborts(0, own, 20)).findings.at(0).headline, "rank 1 was killed by SIGABRT");
  lockstep::Run alone = aborts(1, teardown, 20);
  by_somebody_else(alone, Rank{0});
  alone.ends[0].signal.reset();
  alone.ends[0].exit_status = 0;
  const Finding finding = check(alone).findings.at(0);
  EXPECT_TRUE(finding.culprits.empty());
  EXPECT_THAT(texts_of(finding.evidence), Contains("pid 900 (torchrun) had asked it to end"));
}

TEST(EndedRanks, WhoeverIsAskedToEndAndDoesHasNotLeftTheOthers) {
  const Row waits = kSome + Row{all_reduce("dp", 8).at("t.py", 9).pending()};
  lockstep::Run run = ended(kSender, 124, waits);
  run.ends[0].signal.reset();
  run.ends[0].exit_status = 0;
  EXPECT_THAT(check(run).findings.at(0).headline, "rank 1 was killed by SIGTERM");
  const auto judged = [&] { return checkers::judge(run, checkers::all_checkers()).findings.at(0); };
  EXPECT_EQ(judged().code, Code::kAbsentRank);
  EXPECT_TRUE(judged().culprits.empty());
  by_somebody_else(run, Rank{0});
  EXPECT_EQ(judged().culprits, RankSet{Rank{0}}) << "it left by itself";
}

TEST(EndedRanks, WhatTheyWaitedForWhenATimeLimitEndedThemIsJudged) {
  const Row waits = kSome + Row{all_reduce("dp", 8).at("t.py", 12).pending()};
  lockstep::Run run = ended(kSender, 124, waits);
  const auto judged = [&] { return checkers::judge(run, checkers::all_checkers()).findings.at(0); };
  EXPECT_EQ(judged().code, Code::kAbsentRank);
  EXPECT_THAT(texts_of(judged().evidence),
              Contains("after it, LS101: ranks 0,1 were killed by SIGTERM"));
  by_somebody_else(run, Rank{0});
  EXPECT_EQ(judged().code, Code::kRankDied) << "rank 0 had ended first";
}

}  // namespace
}  // namespace lockstep::testing
