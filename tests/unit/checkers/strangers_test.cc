// Goal: a rank that met a rank of another job is told, and nobody who only has company from
// outside. Method: typed runs; in the first one rank 1 was late, and the job's rank 0 was in a
// group without it.
#include "checkers/hang/strangers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/support/typed_run.h"

namespace lockstep {
namespace {

using namespace lockstep::testing;
using checkers::met_another_job;

Run with_a_stranger() {
  auto run = make_run({{all_reduce("dp", 8)}, {all_reduce("dp", 8)}});
  const Process& process = process_of(run, Rank{0});
  run.strangers.push_back({.at_ns = process.opened_ns + kMs,
                           .rank = Rank{0},
                           .pid = process.pid,
                           .address = "127.0.0.1:29500",
                           .other = 4711,
                           .name = "python other.py"});
  return run;
}

/// Rank 1 came into its group when rank 0 had ended.
Run never_met() {
  auto run = with_a_stranger();
  Process& late = process_of(run, Rank{1});
  late.opened_ns = last_event(run) + 10'000 * kMs;
  for (ProcessEnd& end : run.ends) {
    if (end.pid == late.pid)
      end.at_ns = late.opened_ns + kMs;
  }
  return run;
}

TEST(Strangers, RanksThatNeverMetHadAnotherPeer) {
  const auto finding = met_another_job(never_met());
  ASSERT_TRUE(finding.has_value());
  EXPECT_EQ(finding->code, Code::kNeverJoined);
  EXPECT_EQ(finding->headline,
            "the peer of rank 0 is no process of this job: pid 4711 (python other.py)");
  EXPECT_THAT(finding->culprits, ::testing::IsEmpty());
}

TEST(Strangers, ARankThatFailedBeforeItsGroupWasReplaced) {
  auto run = with_a_stranger();
  const std::int32_t pid = process_of(run, Rank{1}).pid;
  std::erase_if(run.processes, [&](const Process& process) { return process.pid == pid; });
  EXPECT_FALSE(met_another_job(run).has_value());  // It ended well: it may have no history.
  ends_with_status(run, Rank{1}, 1, last_event(run) + kMs);
  EXPECT_TRUE(met_another_job(run).has_value());
}

TEST(Strangers, CompanyFromOutsideIsNoPeer) {
  EXPECT_FALSE(met_another_job(with_a_stranger()).has_value());
  auto nobody = never_met();
  nobody.strangers.clear();
  EXPECT_FALSE(met_another_job(nobody).has_value());
}

/// The other ranks are of a job of their own, as one node of several.
TEST(Strangers, ARankThatWasNeverHereIsNotMissed) {
  auto run = with_a_stranger();
  const std::int32_t pid = process_of(run, Rank{1}).pid;
  std::erase_if(run.processes, [&](const Process& process) { return process.pid == pid; });
  std::erase_if(run.starts, [&](const ProcessStart& start) { return start.pid == pid; });
  std::erase_if(run.ends, [&](const ProcessEnd& end) { return end.pid == pid; });
  EXPECT_FALSE(met_another_job(run).has_value());
}

}  // namespace
}  // namespace lockstep
