// Goal: of the processes of a run those that belong together are one world, whatever came before,
// after or beside them. Method: typed runs, times in seconds, each with its twin.
#include "harness/model/worlds.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <vector>

namespace lockstep {
namespace {

using ::testing::ElementsAre;

constexpr std::uint64_t kSecond = 1'000'000'000;
using Pids = std::set<std::int32_t>;

struct Typed {
  Rank rank{};
  std::int32_t pid{};
  double from{}, until{};  ///< In its group; 0: it may live.
  std::int32_t parent{1};
  std::string meets_at{};
  std::int32_t size{2};
  bool in_group{true};
  std::int32_t status{};
};

Run run_of(const std::vector<Typed>& processes) {
  Run run;
  const auto ns = [](double seconds) {
    return static_cast<std::uint64_t>(seconds * static_cast<double>(kSecond));
  };
  for (const Typed& each : processes) {
    ProcessStart start{.at_ns = ns(each.from), .role = Role::kRank, .rank = each.rank};
    start.pid = each.pid;
    start.parent = each.parent;
    start.world_size = each.size;
    start.meets_at = each.meets_at;
    run.starts.push_back(start);
    if (each.until > 0) {
      ProcessEnd end{.at_ns = ns(each.until), .role = Role::kRank, .rank = each.rank};
      end.pid = each.pid;
      end.exit_status = each.status;
      run.ends.push_back(end);
    }
    if (!each.in_group)
      continue;
    Process process;
    process.pid = each.pid;
    process.parent_pid = each.parent;
    process.rank = each.rank;
    process.world_size = each.size;
    process.opened_ns = ns(each.from);
    process.groups.emplace_back();
    run.processes.push_back(process);
  }
  return run;
}

/// By world, whose histories and starts it has.
std::vector<Pids> worlds(const std::vector<Typed>& processes) {
  std::vector<Pids> pids;
  for (const World& world : worlds_of(run_of(processes))) {
    Pids& of_world = pids.emplace_back();
    for (const Process& process : world.run.processes)
      of_world.insert(process.pid);
    for (const ProcessStart& start : world.run.starts)
      of_world.insert(start.pid);
  }
  return pids;
}

constexpr Rank k0{0}, k1{1};

TEST(Worlds, OneSetOfRanksIsOne) {
  EXPECT_THAT(worlds({{k0, 10, 1, 5}, {k1, 11, 1.1, 5}}), ElementsAre(Pids{10, 11}));
  EXPECT_THAT(worlds({}), ElementsAre(Pids{}));
}

TEST(Worlds, OnePhaseAfterTheOther) {
  EXPECT_THAT(worlds({{k0, 10, 1, 5}, {k1, 11, 1.1, 5.2}, {k0, 20, 6, 8}, {k1, 21, 6.1, 8}}),
              ElementsAre(Pids{10, 11}, Pids{20, 21}));
  // In quick succession: each was followed.
  EXPECT_THAT(worlds({{k0, 10, 1, 1.5}, {k1, 11, 1.1, 1.5}, {k0, 20, 1.6, 8}, {k1, 21, 1.7, 8}}),
              ElementsAre(Pids{10, 11}, Pids{20, 21}));
}

TEST(Worlds, AnotherSizeIsAnotherWorld) {
  EXPECT_THAT(worlds({{k0, 10, 1, 9},
                      {k1, 11, 1, 9},
                      {.rank = k0, .pid = 20, .from = 2, .until = 8, .parent = 10, .size = 3}}),
              ElementsAre(Pids{10, 11}, Pids{20}));
}

TEST(Worlds, TwoAtOneTimeAreToldApartByWhereTheyMeetOrWhoStartedThem) {
  const auto mixed = [](const std::vector<std::int32_t>& parents,
                        const std::vector<std::string>& meets) {
    return worlds({{k0, 10, 1, 9, parents[0], meets[0]},
                   {k1, 21, 1.1, 9, parents[1], meets[1]},
                   {k1, 11, 1.2, 9, parents[0], meets[0]},
                   {k0, 20, 1.3, 9, parents[1], meets[1]}});
  };
  EXPECT_THAT(mixed({1, 1}, {"a:1", "a:2"}), ElementsAre(Pids{10, 11}, Pids{20, 21}));
  EXPECT_THAT(mixed({1, 2}, {"", ""}), ElementsAre(Pids{10, 11}, Pids{20, 21}));
  // Else nobody knows who belongs to whom.
  EXPECT_THAT(mixed({1, 1}, {"", ""}), ElementsAre(Pids{10, 11, 20, 21}));
}

TEST(Worlds, RanksOfSeveralLaunchersMayBeOneWorld) {
  EXPECT_THAT(worlds({{k0, 10, 1, 9, 1}, {k1, 11, 1.1, 9, 2}}), ElementsAre(Pids{10, 11}));
  // And each may have been told of another place than the one where they met.
  EXPECT_THAT(worlds({{k0, 10, 1, 9, 1, "a:1"}, {k1, 11, 1.1, 9, 2, "a:2"}}),
              ElementsAre(Pids{10, 11}));
}

TEST(Worlds, AWrapperIsOfTheWorldsThatItStarted) {
  const Typed wrapper{.rank = k0, .pid = 5, .from = 0.5, .until = 9, .in_group = false};
  EXPECT_THAT(
      worlds({wrapper, {k0, 10, 1, 4, 5}, {k1, 11, 1, 4}, {k0, 20, 6, 8, 5}, {k1, 21, 6, 8}}),
      ElementsAre(Pids{5, 10, 11}, Pids{5, 20, 21}));
}

TEST(Worlds, WhoNeverCameToAGroupIsOfTheWorldThatLacksIt) {
  const Typed missing{.rank = k1, .pid = 11, .from = 0.5, .until = 9, .in_group = false};
  EXPECT_THAT(worlds({{k0, 10, 1, 4}, missing}), ElementsAre(Pids{10, 11}));
}

TEST(Worlds, SiblingsThatNeverMetAreOne) {
  const auto worlds_of = [](const std::string& other_place, std::int32_t other_parent, Rank second,
                            const std::string& place = "a:1") {
    return worlds({{k0, 10, 1, 4, 1, place}, {second, 11, 6, 9, other_parent, other_place}});
  };
  EXPECT_THAT(worlds_of("a:1", 1, k1), ElementsAre(Pids{10, 11}));
  EXPECT_THAT(worlds_of("a:2", 1, k1), ElementsAre(Pids{10}, Pids{11}));
  EXPECT_THAT(worlds_of("a:1", 2, k1), ElementsAre(Pids{10}, Pids{11}));
  EXPECT_THAT(worlds_of("a:1", 1, k0), ElementsAre(Pids{10}, Pids{11}));
  EXPECT_THAT(worlds_of("", 1, k1, ""), ElementsAre(Pids{10}, Pids{11}));
}

TEST(Worlds, WhoCameLateToThePlaceWhereTheOthersMetIsOfTheirWorld) {
  const Typed there{.rank = k0, .pid = 10, .from = 1, .until = 4, .meets_at = "a:1"};
  Typed late{.rank = k1,
             .pid = 11,
             .from = 6,
             .until = 9,
             .meets_at = "a:1",
             .in_group = false,
             .status = 1};
  EXPECT_THAT(worlds({there, late}), ElementsAre(Pids{10, 11}));
  // Unless the other one was started again, too.
  const Typed again{.rank = k0,
                    .pid = 20,
                    .from = 6,
                    .until = 9,
                    .meets_at = "a:1",
                    .in_group = false,
                    .status = 1};
  EXPECT_THAT(worlds({there, again, late}), ElementsAre(Pids{10}, Pids{11, 20}));
  late.meets_at = "a:2";
  EXPECT_THAT(worlds({there, late}), ElementsAre(Pids{10}, Pids{11}));
}

TEST(Worlds, ATryThatCameToNoGroupIsOneOfItsOwnIfItFailed) {
  Typed first{.rank = k0, .pid = 10, .from = 1, .until = 2, .in_group = false, .status = 1};
  const std::vector<Typed> second{{k0, 20, 4, 8}, {k1, 21, 4, 8}};
  EXPECT_THAT(worlds({first, second[0], second[1]}), ElementsAre(Pids{10}, Pids{20, 21}));
  first.status = 0;  // It prepared something.
  EXPECT_THAT(worlds({first, second[0], second[1]}), ElementsAre(Pids{10, 20, 21}));
}

TEST(Worlds, ASideCarAloneIsNone) {
  const Typed side_car{.rank = k0, .pid = 30, .from = 2, .until = 8, .size = 1};
  EXPECT_THAT(worlds({{k0, 10, 1, 9}, {k1, 11, 1, 9}, side_car}), ElementsAre(Pids{10, 11, 30}));
  // Two that are alone at one time are two.
  const Typed other{.rank = k0, .pid = 31, .from = 2, .until = 8, .size = 1};
  EXPECT_THAT(worlds({side_car, other}), ElementsAre(Pids{30}, Pids{31}));
}

TEST(Worlds, WhatIsOfNoProcessOfThemIsInTheLastAndOursInBoth) {
  auto run = run_of({{k0, 10, 1, 5}, {k1, 11, 1, 5}, {k0, 20, 6, 8}, {k1, 21, 6, 8}});
  run.starts.push_back({.role = Role::kOther, .pid = 1});
  run.acted.push_back({.at_ns = 7 * kSecond, .action = "deadline"});
  run.leftovers.emplace_back();
  const std::vector<World> worlds = worlds_of(run);
  ASSERT_EQ(worlds.size(), 2U);
  EXPECT_TRUE(worlds[0].run.acted.empty());
  EXPECT_TRUE(worlds[0].run.leftovers.empty());
  EXPECT_EQ(worlds[1].run.acted.size(), 1U);
  EXPECT_EQ(worlds[1].run.leftovers.size(), 1U);
  for (const World& world : worlds)
    EXPECT_EQ(world.run.starts.back().pid, 1);
}

TEST(Worlds, OnlyThoseThatAreThereTogetherAreToldWhileItRuns) {
  EXPECT_TRUE(worlds_at_one_time(run_of({{k0, 10, 1, 5}, {k1, 11, 1, 5}, {k0, 20, 6}, {k1, 21, 6}}))
                  .empty());
  EXPECT_EQ(
      worlds_at_one_time(
          run_of({{k0, 10, 1, 0, 1}, {k1, 11, 1, 0, 1}, {k0, 20, 1, 0, 2}, {k1, 21, 1, 0, 2}}))
          .size(),
      2U);
}

}  // namespace
}  // namespace lockstep
