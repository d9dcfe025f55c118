// Runs of several hosts as one: times in one clock, process ids told apart, and what cannot be
// known.
#include <gmock/gmock.h>

#include "harness/history/hosts.h"

namespace lockstep::history {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr std::uint64_t kMs = 1'000'000;

/// Of one rank, which calls all_reduce at such times and has the result at such (0: never).
lockstep::Run host(const std::string& name, std::int32_t rank,
                   const std::vector<std::pair<std::uint64_t, std::uint64_t>>& called_completed) {
  Process process;
  process.host = process.boot_id = name;
  process.pid = 7;
  process.rank = Rank{rank};
  process.world_size = 2;
  process.opened_ns = called_completed.front().first;
  process.groups.push_back({.name = "0", .size = 2, .my_rank = rank, .seen_from_creation = true});
  std::uint64_t seq = 0;
  for (const auto& [called, completed] : called_completed) {
    Collective collective{.record = seq, .seq = seq, .issued_ns = called, .thread = 7};
    collective.op = Op::kAllReduce;
    if (completed != 0)
      collective.completed_ns = completed;
    process.collectives.push_back(collective);
    ++seq;
  }
  lockstep::Run run;
  run.directory = name;
  run.plan.world_size = 2;
  run.plan.begun_ns = process.opened_ns;
  run.journal_complete = true;
  run.starts.push_back(
      {.at_ns = process.opened_ns, .role = Role::kRank, .rank = Rank{rank}, .pid = 7});
  run.states.push_back(
      {.at_ns = process.opened_ns + kMs, .rank = Rank{rank}, .pid = 7, .threads = {{.tid = 7}}});
  run.processes.push_back(std::move(process));
  return run;
}

const Process& of_rank(const lockstep::Run& run, std::int32_t rank) {
  return *run.process_of(Rank{rank});
}

TEST(Hosts, WhatIsMatchedTellsHowFarClocksAreApart) {
  // The second one's clock is 9,000 ms ahead; each call takes 2 ms.
  const Result<lockstep::Run> run = merge_hosts(
      {host("b", 1, {{9101 * kMs, 9103 * kMs}, {9202 * kMs, 9203 * kMs}, {9300 * kMs, 0}}),
       host("a", 0, {{102 * kMs, 103 * kMs}, {201 * kMs, 203 * kMs}})});
  ASSERT_TRUE(run);
  EXPECT_THAT(run->hosts, ElementsAre("a", "b"));
  EXPECT_LE(run->clock_error_ns, kMs + 1);
  const std::int64_t off = static_cast<std::int64_t>(of_rank(*run, 1).collectives[2].issued_ns) -
                           300 * std::int64_t{kMs};
  EXPECT_LE(std::abs(off), static_cast<std::int64_t>(run->clock_error_ns));
  EXPECT_EQ(run->processes.size(), 2U);
  EXPECT_EQ(run->missing, std::vector<std::string>());
  EXPECT_LT(run->states[0].at_ns, 104 * kMs);
  EXPECT_LT(run->states[1].at_ns, 104 * kMs);
}

TEST(Hosts, TheLastCallsCountWhereClocksDrift) {
  // By 50 ms between the first call and the last one.
  const Result<lockstep::Run> run =
      merge_hosts({host("a", 0, {{100 * kMs, 101 * kMs}, {90'000 * kMs, 90'001 * kMs}}),
                   host("b", 1, {{500 * kMs, 501 * kMs}, {90'450 * kMs, 90'451 * kMs}})});
  ASSERT_TRUE(run);
  EXPECT_LE(run->clock_error_ns, kMs + 1);
  const auto last = static_cast<std::int64_t>(of_rank(*run, 1).collectives[1].issued_ns);
  EXPECT_LE(std::abs(last - 90'000 * std::int64_t{kMs}), 2 * std::int64_t{kMs});
}

TEST(Hosts, WithoutACompletedCallTheyAreNotComparable) {
  const Result<lockstep::Run> run =
      merge_hosts({host("a", 0, {{100 * kMs, 0}}), host("b", 1, {{9100 * kMs, 0}})});
  ASSERT_TRUE(run);
  EXPECT_EQ(run->clock_error_ns, kClocksUnknown);
  EXPECT_THAT(run->missing, ElementsAre(HasSubstr("clocks of a and b are apart")));
}

TEST(Hosts, OneHostWithTwoLocksteps) {
  lockstep::Run second = host("a", 1, {{101 * kMs, 103 * kMs}});
  second.processes[0].boot_id = "a";
  const Result<lockstep::Run> run = merge_hosts({host("a", 0, {{102 * kMs, 103 * kMs}}), second});
  ASSERT_TRUE(run);
  EXPECT_EQ(run->clock_error_ns, 0U);
  EXPECT_EQ(of_rank(*run, 1).collectives[0].issued_ns, 101 * kMs);
  EXPECT_THAT(run->hosts, ElementsAre("a"));
  EXPECT_EQ(of_rank(*run, 1).pid, 7);  // As its own lockstep has it.
}

TEST(Hosts, ProcessesOfOnePidAreToldApart) {
  const Result<lockstep::Run> run = merge_hosts(
      {host("a", 0, {{100 * kMs, 101 * kMs}}), host("b", 1, {{9100 * kMs, 9101 * kMs}})});
  ASSERT_TRUE(run);
  const Process& there = of_rank(*run, 1);
  EXPECT_NE(of_rank(*run, 0).pid, there.pid);
  EXPECT_EQ(there.pid, static_cast<std::int32_t>(there.collectives[0].thread));
  for (const StateSample& sample : run->states)
    EXPECT_EQ(sample.pid, sample.threads[0].tid);
  EXPECT_EQ(words_of_pid(of_rank(*run, 0).pid), "pid 7");
  EXPECT_EQ(words_of_pid(there.pid), "pid 7 of host 2");
  EXPECT_EQ(own_pid(there.pid), 7);
}

TEST(Hosts, TwoJobsAreNotOne) {
  lockstep::Run earlier = host("a", 0, {{100 * kMs, 0}}), later = host("b", 0, {{900 * kMs, 0}});
  earlier.ended_ns = 200 * kMs;
  later.ended_ns = 1000 * kMs;
  for (lockstep::Run* const run : {&earlier, &later})
    run->plan.wall_ns = (run->plan.written_ns = run->plan.begun_ns) + 5;
  const Result<lockstep::Run> run = merge_hosts({earlier, later});
  ASSERT_FALSE(run);
  EXPECT_EQ(run.error().kind, Error::Kind::kUsage);
  EXPECT_THAT(run.error().what, HasSubstr("rank 0 is in a and, at another time, in b"));
  // At one time they may be: one rank was given twice.
  later.plan.begun_ns = 150 * kMs;
  EXPECT_TRUE(merge_hosts({earlier, later}));
}

}  // namespace
}  // namespace lockstep::history
