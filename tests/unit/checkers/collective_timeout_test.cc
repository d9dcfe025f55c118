// Goal: who gives up after it has waited for ranks that have not come is innocent, however it ends.
#include "checkers/hang/collective_timeout.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <functional>

#include "checkers/exit/rank_failed.h"
#include "tests/support/typed_run.h"

namespace lockstep::testing {
namespace {

Verdict check(const lockstep::Run& run) { return checkers::RankFailed().check(run); }

/// Rank 0 gives up in its own words after its last call, which only it may have issued.
Finding gave_up(const Row& zero, const Row& one, std::uint64_t after_ns) {
  lockstep::Run run = make_run({zero, one});
  const std::uint64_t at_ns = process_of(run, Rank{0}).collectives.back().issued_ns + after_ns;
  raises(run, Rank{0}, "TimeoutError: no result", at_ns);
  ends_with_signal(run, Rank{1}, 15, at_ns + 2 * kMs);
  run.ends.back().our_signal = 15;
  return check(run).findings.front();
}

TEST(GivingUp, WhoGaveUpWaitingForAnotherIsInnocent) {
  const Row row = times(3, {all_reduce("dp", 8).at("t.py", 4)});
  const Call waiting = all_reduce("dp", 8).async().pending();
  const Finding finding = gave_up(row + Row{waiting}, row, 2'000 * kMs);
  EXPECT_EQ(finding.code, Code::kRankDied);
  EXPECT_TRUE(finding.culprits.empty());
  EXPECT_THAT(texts_of(finding.evidence),
              ::testing::Contains("rank 1 never came to it; its last call before was all_reduce #2 "
                                  "at t.py:4"));
  // It did not wait, or not there, or not for long, or the other one was there.
  for (const Finding& own : {gave_up(row, row, 2'000 * kMs),
                             gave_up(row + Row{Call(waiting).on_thread(77)}, row, 2'000 * kMs),
                             gave_up(row + Row{waiting}, row, 20 * kMs),
                             gave_up(row + Row{waiting}, row + Row{waiting}, 2'000 * kMs)})
    EXPECT_EQ(own.culprits, RankSet{Rank{0}}) << own.headline;
}

/// A watchdog of its own, a timer; the killer of who needs too much memory does not look at that.
TEST(GivingUp, WhoEndedItselfWaitingForAnotherIsInnocent) {
  const Row row = times(3, {all_reduce("dp", 8)});
  const auto ended_by = [&](std::int32_t signal) {
    lockstep::Run run = make_run({row + Row{all_reduce("dp", 8).async().pending()}, row});
    const std::uint64_t at_ns = process_of(run, Rank{0}).collectives.back().issued_ns + 2'000 * kMs;
    if (signal == 0)
      ends_with_status(run, Rank{0}, 3, at_ns);
    else
      ends_with_signal(run, Rank{0}, signal, at_ns);
    ends_with_signal(run, Rank{1}, 15, at_ns + 2 * kMs);
    run.ends.back().our_signal = 15;
    return check(run).findings.front();
  };
  for (const std::int32_t own : {0, SIGALRM, SIGABRT}) {
    EXPECT_TRUE(ended_by(own).culprits.empty()) << own;
    EXPECT_THAT(texts_of(ended_by(own).evidence),
                ::testing::Contains("rank 0 failed in all_reduce #3"));
  }
  EXPECT_EQ(ended_by(SIGKILL).culprits, RankSet{Rank{0}});
}

/// However many raise after it.
TEST(GivingUp, WhatWasWaitedForIsToldFirst) {
  const Row row = times(3, {all_reduce("dp", 8)});
  std::vector<Row> rows(15, row + Row{all_reduce("dp", 8).async().pending()});
  rows.push_back(row);
  lockstep::Run run = make_run(rows);
  const std::uint64_t at_ns = process_of(run, Rank{0}).collectives.back().issued_ns + 2'000 * kMs;
  for (int rank = 0; rank < 15; ++rank)
    raises(run, Rank{rank},
           fmt::format("{}Error: no result", rank % 2 == 0 ? "Timeout" : "Runtime"), at_ns);
  ends_with_signal(run, Rank{15}, SIGTERM, at_ns + 2 * kMs);
  run.ends.back().our_signal = SIGTERM;
  const Finding finding = check(run).findings.front();
  EXPECT_TRUE(finding.culprits.empty()) << finding.headline;
  ASSERT_GE(finding.evidence.size(), 2U);
  EXPECT_EQ(finding.evidence[0].text, "it had waited in all_reduce dp#3 for others");
  EXPECT_THAT(finding.evidence[1].text, ::testing::HasSubstr("rank 15 never came to it"));
}

TEST(GivingUp, WhatCompletesAfterItWasGivenUpWasWaitedForAllTheSame) {
  const Row row = times(3, {all_reduce("dp", 8)});
  for (const std::uint64_t gives_up_ms : {2'000U, 4'000U}) {
    lockstep::Run run = make_run({row, row});
    Collective& waiting = process_of(run, Rank{0}).collectives.back();
    Collective& late = process_of(run, Rank{1}).collectives.back();
    late.issued_ns = waiting.issued_ns + 3'000 * kMs;
    waiting.completed_ns = late.completed_ns = late.issued_ns + kMs;
    raises(run, Rank{0}, "TimeoutError: no result", waiting.issued_ns + gives_up_ms * kMs);
    EXPECT_EQ(check(run).findings.front().culprits,
              gives_up_ms == 2'000U ? RankSet{} : RankSet{Rank{0}});
  }
}

/// Of three ranks, rank 1 sleeps and does not come to the fourth call; the others wait for it, and
/// after 15 s PyTorch gives up for them.
lockstep::Run timed_out(const std::function<void(lockstep::Run&)>& change = {}) {
  const Row row = times(3, {all_reduce("dp", 8).at("t.py", 4)});
  const Row waits = row + Row{all_reduce("dp", 8).pending().at("t.py", 4)};
  lockstep::Run run = make_run({waits, row, waits});
  hang(run, false);
  run.live = false;
  run.journal_complete = true;
  for (StateSample& sample : run.states) {
    if (sample.rank == Rank{1})
      thread_of(sample, 1001).wchan = "hrtimer_nanosleep";
  }
  for (const Rank rank : {Rank{0}, Rank{2}}) {
    Collective& call = process_of(run, rank).collectives.back();
    const std::uint64_t at_ns = call.issued_ns + 15'000 * kMs;
    call.returned_ns = call.issued_ns + kMs;
    call.completed_ns = at_ns;
    call.failed = true;
    run.ends.push_back(
        {.at_ns = at_ns, .role = Role::kRank, .rank = rank, .pid = 1000 + rank.value});
    raises(run, rank, "RuntimeError: Timed out waiting 15000ms for recv operation to complete",
           at_ns + kMs);
  }
  if (change)
    change(run);
  return run;
}

TEST(GivingUp, WhatHeldTheOneThatWasWaitedForIsToldAsItWasSeenBefore) {
  const auto finding = checkers::given_up(timed_out());
  ASSERT_TRUE(finding);
  EXPECT_EQ(finding->code, Code::kStalledOutside);
  EXPECT_EQ(finding->culprits, RankSet{Rank{1}});
  EXPECT_EQ(finding->headline,
            "rank 1 sleeps, and had not entered all_reduce dp#3 when the first of those who waited "
            "gave up; ranks 0,2 waited");
}

void comes_late(lockstep::Run& run) {
  Process& late = process_of(run, Rank{1});
  Collective call = late.collectives.back();
  call.issued_ns = process_of(run, Rank{0}).collectives.back().completed_ns.value() + 900 * kMs;
  ++call.seq;
  ++call.record;
  late.collectives.push_back(call);
  ++late.groups[call.group].issued;
}

void wait_for_six_seconds(lockstep::Run& run) {
  for (const Rank rank : {Rank{0}, Rank{2}})
    *process_of(run, rank).collectives.back().completed_ns -= 9'000 * kMs;
}

void say_it_themselves(lockstep::Run& run) {
  for (Raised& raised : run.raised)
    raised.text = "TimeoutError: no result";
}

TEST(GivingUp, WhatHeldItIsNotToldWhereItCameOrNobodyLookedOrTheyWereImpatient) {
  EXPECT_TRUE(checkers::given_up(timed_out(say_it_themselves)));
  EXPECT_FALSE(checkers::given_up(timed_out([](lockstep::Run& run) {
    say_it_themselves(run);
    comes_late(run);
  }))) << "it came after all";
  EXPECT_FALSE(checkers::given_up(timed_out([](lockstep::Run& run) { run.states.clear(); })));
  EXPECT_FALSE(checkers::given_up(timed_out([](lockstep::Run& run) {
    say_it_themselves(run);
    wait_for_six_seconds(run);
  }))) << "they waited for 6 s";
  EXPECT_FALSE(checkers::given_up(timed_out([](lockstep::Run& run) {
    run.ends.push_back({.role = Role::kRank, .rank = Rank{1}, .pid = 1001});
    raises(run, Rank{1}, "ValueError: no such file", stall_ns(run) + 16'000 * kMs);
  }))) << "it failed for a reason of its own";
}

/// The program had set it: who had not come by then was too late.
TEST(GivingUp, ALimitOfPyTorchsMayBeShort) {
  const auto finding = checkers::given_up(timed_out([](lockstep::Run& run) {
    comes_late(run);
    wait_for_six_seconds(run);
    process_of(run, Rank{1}).collectives.back().issued_ns -= 9'000 * kMs;
  }));
  ASSERT_TRUE(finding);
  EXPECT_EQ(finding->code, Code::kStalledOutside);
  EXPECT_EQ(finding->culprits, RankSet{Rank{1}});
  EXPECT_THAT(texts_of(finding->evidence),
              ::testing::Contains("rank 1 came to it 0.9 s after that at "
                                  "t.py:4"));
}

/// Whatever it tries there afterwards fails at once.
TEST(GivingUp, TheFirstCallThatFailedIsTheOneThatWasWaitedIn) {
  const Row row = times(3, {all_reduce("dp", 8).at("t.py", 4)});
  const Row again = times(2, {all_reduce("dp", 8).failed().at("t.py", 4)});
  lockstep::Run run = make_run({row + again, row});
  std::vector<Collective>& calls = process_of(run, Rank{0}).collectives;
  calls[3].completed_ns = calls[3].issued_ns + 3'000 * kMs;
  calls[4].issued_ns = *calls[3].completed_ns + kMs;
  calls[4].completed_ns = calls[4].issued_ns + kMs;
  raises(run, Rank{0}, "RuntimeError: [gloo] Application timeout caused pair closure",
         *calls[4].completed_ns + kMs);
  ends_with_signal(run, Rank{1}, SIGTERM, *calls[4].completed_ns + 9 * kMs);
  run.ends.back().our_signal = SIGTERM;
  EXPECT_THAT(texts_of(check(run).findings.front().evidence),
              ::testing::Contains("it had waited in all_reduce dp#3 for others"));
}

/// Their collectives went to their GPUs, and their stacks do not show that they wait for those.
TEST(GivingUp, NcclsWatchdogSaysWhatItsRankWaitedFor) {
  const auto on_gpus = [](const std::string& text) {
    return checkers::given_up(timed_out([&](lockstep::Run& run) {
      for (const Rank rank : {Rank{0}, Rank{2}}) {
        for (Collective& call : process_of(run, rank).collectives) {
          call.completed_ns.reset();
          call.failed = false;
          call.completion_unseen = true;
        }
      }
      run.stacks.clear();
      for (Raised& raised : run.raised)
        raised.text = text;
    }));
  };
  for (const char* const text :
       {"DistBackendError: Watchdog caught collective operation timeout: ...",
        "DistBackendError: NCCL communicator was aborted on rank 0."}) {
    const auto finding = on_gpus(text);
    ASSERT_TRUE(finding) << text;
    EXPECT_EQ(finding->culprits, RankSet{Rank{1}}) << text;
  }
  EXPECT_FALSE(on_gpus("RuntimeError: Connection closed by peer"));
}

}  // namespace
}  // namespace lockstep::testing
