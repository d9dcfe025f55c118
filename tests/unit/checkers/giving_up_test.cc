// Goal: who gives up after it has waited for ranks that have not come is innocent, however it ends.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>

#include "checkers/process_end.h"
#include "tests/support/typed_run.h"

namespace lockstep::testing {
namespace {

Verdict check(const lockstep::Run& run) { return checkers::ProcessEndChecker().check(run); }

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
  EXPECT_EQ(finding.code, "LS101");
  EXPECT_TRUE(finding.culprits.empty());
  EXPECT_THAT(finding.evidence,
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
    EXPECT_THAT(ended_by(own).evidence, ::testing::Contains("rank 0 failed in all_reduce #3"));
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
  EXPECT_EQ(finding.evidence[0], "it had waited in all_reduce dp#3 for others");
  EXPECT_THAT(finding.evidence[1], ::testing::HasSubstr("rank 15 never came to it"));
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

}  // namespace
}  // namespace lockstep::testing
