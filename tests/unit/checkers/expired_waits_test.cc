// Goal: a wait for a message whose limit passed, which closes connections, is told before whoever
// noticed that; never where it may have ended well, or where it was not seen.
#include "checkers/hang/expired_waits.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "checkers/exit/rank_failed.h"
#include "tests/support/typed_run.h"

namespace lockstep::testing {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

Finding found(const lockstep::Run& run) {
  const Verdict verdict = checkers::RankFailed().check(run);
  return verdict.findings.empty() ? Finding{} : verdict.findings.front();
}

/// Rank 0 waits for 1 s for what rank 1 sends after 3 s, catches that, and fails in the next call.
lockstep::Run polled(const std::function<void(lockstep::Run&)>& change = {}) {
  const Row row = times(3, {all_reduce("dp", 4).at("t.py", 14)});
  lockstep::Run run = make_run({row + Row{recv("dp", 1, 1).async().at("t.py", 17)},
                                row + Row{send("dp", 0, 1).at("t.py", 28)}});
  Collective& receive = process_of(run, Rank{0}).collectives.back();
  Collective& sent = process_of(run, Rank{1}).collectives.back();
  const std::uint64_t from_ns = *receive.returned_ns;
  sent.issued_ns = from_ns + 3'000 * kMs;
  sent.returned_ns = sent.issued_ns + kMs;
  for (Process& process : run.processes)
    process.groups.front().timeout_ms = 1'800'000;
  StateSample sample{.at_ns = from_ns + 300 * kMs, .rank = Rank{0}, .pid = 1000};
  sample.threads.push_back({.tid = 1000, .state = 'S', .wchan = "futex_wait_queue"});
  sample.threads.front().for_own_threads = true;
  sample.threads.front().until_ns = from_ns + 1'000 * kMs;
  run.states.push_back(sample);
  StackSample stack = stack_of(run, Rank{0}, {"c10d::ProcessGroupGloo::RecvWork::wait"});
  stack.at_ns = sample.at_ns + 5 * kMs;
  stack.frames.push_back({"/app/t.py", 20, "t.py", 20, "main", {}});
  run.stacks.push_back(stack);
  raises(run, Rank{0}, "RuntimeError: [gloo] Application timeout caused pair closure",
         from_ns + 1'200 * kMs);
  raises(run, Rank{1}, "RuntimeError: [gloo] Connection closed by peer", from_ns + 3'100 * kMs);
  if (change)
    change(run);
  return run;
}

TEST(ExpiredWaits, TheWaitThatClosedTheConnectionIsToldFirst) {
  const Finding finding = found(polled());
  EXPECT_EQ(finding.code, Code::kRankDied);
  EXPECT_EQ(finding.culprits, RankSet{Rank{0}}) << finding.headline;
  EXPECT_THAT(finding.headline, HasSubstr("rank 0's wait in recv dp#0 from rank 1 expired after "
                                          "1.0 s at t.py:20"));
  EXPECT_THAT(texts_of(finding.evidence),
              Contains("rank 1 lived then, and came to it 2.0 s later at "
                       "t.py:28"));
  EXPECT_EQ(finding.consequences, 2U);
}

TEST(ExpiredWaits, WhereItWasTheLimitOfTheGroupNobodyIsNamed) {
  const Finding finding = found(polled([](lockstep::Run& run) {
    for (Process& process : run.processes)
      process.groups.front().timeout_ms = 1'000;
  }));
  EXPECT_THAT(finding.headline, HasSubstr("expired after 1.0 s"));
  EXPECT_TRUE(finding.culprits.empty());
}

TEST(ExpiredWaits, ItIsNotToldWhereItMayHaveEndedWellOrWasNotSeenOrSomebodyFailedByItself) {
  const auto not_told = [](const std::function<void(lockstep::Run&)>& change) {
    return found(polled(change)).headline.find("expired") == std::string::npos;
  };
  EXPECT_TRUE(not_told([](lockstep::Run& run) {
    process_of(run, Rank{1}).collectives.back().issued_ns -= 2'500 * kMs;
  })) << "it was sent before";
  EXPECT_TRUE(not_told([](lockstep::Run& run) { run.stacks.clear(); }));
  EXPECT_THAT(texts_of(found(polled([](lockstep::Run& run) { run.stacks.clear(); })).evidence),
              Contains(HasSubstr("rank 0 says that of itself")));
  EXPECT_TRUE(not_told([](lockstep::Run& run) { run.states.clear(); }));
  EXPECT_TRUE(not_told([](lockstep::Run& run) {
    process_of(run, Rank{1}).groups.front().seen_from_creation = false;
  })) << "rank 1 may have sent it unseen";
  EXPECT_TRUE(not_told([](lockstep::Run& run) { run.raised.back().text = "ValueError: no file"; }));
  EXPECT_TRUE(not_told([](lockstep::Run& run) {
    run.raised.front().text = "RuntimeError: Timed out waiting 1000ms for recv operation";
  })) << "nobody caught it: that is what rank 0 ended by";
}

}  // namespace
}  // namespace lockstep::testing
