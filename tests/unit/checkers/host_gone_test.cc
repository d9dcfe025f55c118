// Goal: a host that is gone is named with its ranks, not those that noticed; silence alone names
// nobody.
#include <gmock/gmock.h>

#include <string>

#include "checkers/exit/rank_failed.h"
#include "tests/support/typed_run.h"

namespace lockstep::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kClosed = "RuntimeError: [pair.cc:542] Connection closed by peer [10.9.0.2]";
constexpr const char* kTimedOut = "RuntimeError: Timed out waiting 15000ms for recv operation";

/// Nothing is heard of node2, which had rank 2, and the others say this.
lockstep::Run silent(const std::string& said) {
  const Row some = times(2, {all_reduce("dp", 8)});
  lockstep::Run run = make_run({some, some, some});
  std::erase_if(run.ends, [](const ProcessEnd& end) { return end.rank == Rank{2}; });
  const std::uint64_t at_ns = stall_ns(run);
  raises(run, Rank{0}, said, at_ns);
  raises(run, Rank{1}, said, at_ns + kMs);
  run.silent_hosts.push_back({.at_ns = at_ns + 3000 * kMs,
                              .host = "node2",
                              .ranks = {Rank{2}},
                              .since_ns = at_ns - 500 * kMs});
  return run;
}

Finding said_of(const lockstep::Run& run) {
  const Verdict verdict = checkers::RankFailed().check(run);
  EXPECT_EQ(verdict.findings.size(), 1U);
  return verdict.findings.empty() ? Finding{} : verdict.findings.front();
}

TEST(HostGone, IsNamedWithItsRanks) {
  const Finding finding = said_of(silent(kClosed));
  EXPECT_EQ(finding.code, Code::kRankDied);
  EXPECT_EQ(finding.headline, "node2 is gone, and with it rank 2");
  EXPECT_EQ(finding.culprits, RankSet{Rank{2}});
  EXPECT_EQ(finding.confidence, Confidence::kLikely);
  EXPECT_EQ(finding.consequences, 2U);
}

TEST(HostGone, IsKnownToTheJournalOfOneHostAlone) {
  lockstep::Run run = silent(kClosed);
  run.journal_complete = false;  // That of the host that is gone has no end.
  std::erase_if(run.processes, [](const Process& process) { return process.rank == Rank{2}; });
  EXPECT_EQ(said_of(run).culprits, RankSet{Rank{2}});
}

TEST(HostGone, SilenceAndALimitThatPassedNameNobody) {
  const Finding finding = said_of(silent(kTimedOut));
  EXPECT_THAT(finding.headline, Not(HasSubstr("is gone")));
  EXPECT_EQ(finding.culprits, RankSet{});
}

TEST(HostGone, WhoFailedByItselfIsNamed) {
  lockstep::Run run = silent(kClosed);
  run.raised.clear();
  raises(run, Rank{0}, "ValueError: bad batch", stall_ns(run));
  raises(run, Rank{1}, kClosed, stall_ns(run) + kMs);
  EXPECT_THAT(said_of(run).headline, HasSubstr("rank 0 raised: ValueError: bad batch"));
}

TEST(HostGone, AnEndThatItToldIsNoneOfAHostThatIsGone) {
  lockstep::Run run = silent(kClosed);
  run.ends.push_back({.at_ns = stall_ns(run) + 10'000 * kMs,
                      .role = Role::kRank,
                      .rank = Rank{2},
                      .pid = 1002,
                      .exit_status = 0});
  EXPECT_THAT(said_of(run).headline, Not(HasSubstr("is gone")));
}

TEST(HostGone, WhatFailedLongBeforeItWasSilentHasAnotherReason) {
  lockstep::Run run = silent(kClosed);
  run.silent_hosts.front().since_ns = stall_ns(run) + 9'000 * kMs;
  EXPECT_THAT(said_of(run).headline, Not(HasSubstr("is gone")));
}

}  // namespace
}  // namespace lockstep::testing
