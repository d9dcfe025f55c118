// The merged order: each process's own, matches across hosts, never their clocks.
#include <gmock/gmock.h>

#include "harness/history/merge.h"

namespace lockstep::history {
namespace {

using testing::ElementsAre;

Process rank_on(const std::string& boot,
                std::vector<std::pair<std::uint64_t, std::uint64_t>> issued_completed) {
  Process process;
  process.boot_id = boot;
  process.groups.push_back({.name = "dp", .size = 2});
  std::uint64_t seq = 0;
  for (const auto& [issued, completed] : issued_completed) {
    Collective collective{.record = seq, .seq = seq, .issued_ns = issued, .op = Op::kAllReduce};
    if (completed != 0)
      collective.completed_ns = completed;
    process.collectives.push_back(collective);
    ++seq;
  }
  return process;
}

std::vector<std::string> order_of(const Run& run) {
  std::vector<std::string> order;
  merge(run, [&](const MergedEvent& event) {
    order.push_back(std::string(1, "irc"[static_cast<int>(event.kind)]) +
                    std::to_string(event.process) + "#" + std::to_string(event.collective));
    return true;
  });
  return order;
}

TEST(HistoryMerge, OneHostIsOrderedByTime) {
  lockstep::Run run;
  run.processes = {rank_on("a", {{10, 50}, {60, 0}}), rank_on("a", {{20, 40}})};
  EXPECT_THAT(order_of(run), ElementsAre("i0#0", "i1#0", "c1#0", "c0#0", "i0#1"));
}

TEST(HistoryMerge, AcrossHostsOnlyMatchesOrder) {
  lockstep::Run run;  // The second host's clock is far ahead.
  run.processes = {rank_on("a", {{10, 50}, {60, 70}}), rank_on("b", {{9000, 9010}, {9020, 9030}})};
  EXPECT_THAT(order_of(run),
              ElementsAre("i0#0", "i1#0", "c1#0", "i1#1", "c0#0", "i0#1", "c0#1", "c1#1"));
}

TEST(HistoryMerge, ContradictionsLoseNothing) {
  lockstep::Run run;  // Each completed what the other issued later.
  run.processes = {rank_on("a", {{10, 20}}), rank_on("b", {{30, 20}})};
  run.processes[1].collectives[0].op = Op::kAllReduce;
  EXPECT_EQ(order_of(run).size(), 4U);
}

TEST(HistoryMerge, StopsWhenTold) {
  lockstep::Run run;
  run.processes = {rank_on("a", {{10, 20}})};
  EXPECT_EQ(merge(run, [](const MergedEvent&) { return false; }), 1U);
}

}  // namespace
}  // namespace lockstep::history
