// Goal: whose child a process is tells for which rank it works, in whatever order their pids are.
#include "harness/launch/lineage.h"

#include <gtest/gtest.h>

namespace lockstep::launch {
namespace {

TEST(Lineage, AProcessWorksForTheRankAboveItWhereverPidsStartAgain) {
  constexpr std::int32_t kLauncher = 2'000'010, kRank = 2'000'020, kWorker = 2'000'005,
                         kHelper = 2'000'001, kOther = 2'000'030;
  const auto process = [](std::int32_t pid, std::int32_t parent) {
    return os::ProcessStat{.id = {pid, 1}, .parent = parent, .state = 'S', .name = "python"};
  };
  // As they are read: by pid. The helper and the worker are younger than the rank.
  const std::vector<os::ProcessStat> family{process(kHelper, kWorker), process(kWorker, kRank),
                                            process(kLauncher, 1), process(kRank, kLauncher),
                                            process(kOther, kLauncher)};
  Lineage lineage(nullptr);
  lineage.see(family, [&](const os::ProcessId& id) {
    return id.pid == kRank ? std::optional(Rank{3}) : std::nullopt;
  });
  for (const std::int32_t pid : {kRank, kWorker, kHelper})
    EXPECT_EQ(lineage.rank_of(pid), Rank{3}) << pid;
  for (const std::int32_t pid : {kLauncher, kOther})
    EXPECT_EQ(lineage.rank_of(pid), std::nullopt) << pid;
}

TEST(Lineage, ARankThatAnotherRankStartedIsKnownAsItselfOnceItIsOne) {
  constexpr std::int32_t kFirst = 2'000'010, kSecond = 2'000'020;
  const std::vector<os::ProcessStat> family{
      {.id = {kFirst, 1}, .parent = 1, .state = 'S', .name = "python"},
      {.id = {kSecond, 1}, .parent = kFirst, .state = 'S', .name = "python"}};
  Lineage lineage(nullptr);
  bool both = false;
  const auto rank_of = [&](const os::ProcessId& id) -> std::optional<Rank> {
    return id.pid == kFirst ? std::optional(Rank{0}) : both ? std::optional(Rank{1}) : std::nullopt;
  };
  lineage.see(family, rank_of);
  EXPECT_EQ(lineage.rank_of(kSecond), Rank{0}) << "a helper, as far as is known";
  both = true;
  lineage.see(family, rank_of);
  EXPECT_EQ(lineage.rank_of(kSecond), Rank{1});
  EXPECT_EQ(lineage.rank_of(kFirst), Rank{0});
}

TEST(Lineage, WhatIsLeftIsToldWithThoseAboveItAndWhenTheyStarted) {
  constexpr std::int32_t kRank = 2'000'010, kShell = 2'000'020, kSleep = 2'000'030;
  const auto process = [](std::int32_t pid, std::int32_t parent, std::uint64_t ticks) {
    return os::ProcessStat{.id = {pid, ticks}, .parent = parent, .state = 'S', .name = "sh"};
  };
  constexpr std::uint64_t kLate = 1'000'000'000;  // Hosts sleep, and ticks go on.
  const os::ProcessStat sleep = process(kSleep, kShell, kLate + 30'000);
  const auto nobody = [](const os::ProcessId&) { return std::optional<Rank>(); };
  Lineage lineage(nullptr);
  lineage.see({process(kRank, 1, kLate + 10'000), process(kShell, kRank, kLate + 20'000), sleep},
              nobody);
  lineage.see({sleep}, nobody);  // The others have ended.
  const std::vector<Ancestor> above = lineage.describe(sleep).lineage;
  ASSERT_EQ(above.size(), 3U);
  EXPECT_EQ(above[1].pid, kShell);
  EXPECT_EQ(above[2].pid, kRank);
  EXPECT_GT(above[0].started_ns, above[1].started_ns);
}

}  // namespace
}  // namespace lockstep::launch
