// Goal: of processes that were only told to be a rank, helpers that it started are none.
#include "harness/launch/tracked_processes.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

namespace lockstep::launch {
namespace {

/// A process that does nothing until it is out of scope.
struct Idle {
  const pid_t pid = ::fork();
  Idle() {
    while (pid == 0)
      ::pause();
  }
  ~Idle() {
    ::kill(pid, SIGKILL);
    ::waitpid(pid, nullptr, 0);
  }
  Idle(const Idle&) = delete;
  Idle& operator=(const Idle&) = delete;
  [[nodiscard]] os::ProcessId id() const { return os::read_process(pid)->id; }
};

std::vector<std::int32_t> believed(const TrackedProcesses& processes) {
  std::vector<std::int32_t> pids;
  for (const Watched& known : processes.known()) {
    if (known.rank)
      pids.push_back(known.id.pid);
  }
  return pids;
}

TEST(TrackedProcesses, OfTwoThatWereThereTogetherTheFirstIsTheRank) {
  const Idle rank, helper, other_rank;
  TrackedProcesses processes(nullptr);
  processes.found(helper.id(), Rank{0}, /*only_told=*/true);  // In whatever order.
  processes.found(rank.id(), Rank{0}, /*only_told=*/true);
  processes.found(other_rank.id(), Rank{1}, /*only_told=*/true);
  EXPECT_TRUE(believed(processes).empty());
  processes.believe_the_rest();
  EXPECT_EQ(believed(processes), (std::vector<std::int32_t>{rank.pid, other_rank.pid}));
}

TEST(TrackedProcesses, AZombieThatWeInheritedIsReapedOnceItsEndIsTaken) {
  const pid_t pid = ::fork();
  if (pid == 0)
    ::_exit(3);
  siginfo_t info{};
  ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOWAIT), 0);
  TrackedProcesses processes(nullptr);
  Tracked& rank = processes.add(Role::kRank, Rank{0}, *os::ProcessHandle::open(pid));
  const std::vector<os::ProcessStat> family{*os::read_process(pid)};
  processes.reap_inherited(family);
  EXPECT_TRUE(os::read_process(pid)) << "its status is still wanted";
  rank.ended = os::ExitReport{.exit_status = 3};
  processes.reap_inherited(family);
  EXPECT_FALSE(os::read_process(pid));
}

TEST(TrackedProcesses, TheCommandMayBeARank) {
  const Idle command;
  TrackedProcesses processes(nullptr);
  processes.add(Role::kOther, std::nullopt, *os::ProcessHandle::open(command.id()));
  EXPECT_FALSE(processes.found(command.id(), Rank{0}, /*only_told=*/true));
  EXPECT_TRUE(believed(processes).empty()) << "what it starts has its environment, too";
  EXPECT_TRUE(processes.living(/*with_command=*/false).empty());
  EXPECT_TRUE(processes.found(command.id(), Rank{0}, /*only_told=*/false));
  EXPECT_FALSE(processes.found(command.id(), Rank{0}, /*only_told=*/false)) << "no news";
  EXPECT_EQ(believed(processes), std::vector<std::int32_t>{command.pid});
  EXPECT_EQ(processes.living(/*with_command=*/false).size(), 1U);
  EXPECT_TRUE(processes.command_lives());
}

TEST(TrackedProcesses, TheGroupSaysWhichRankAndNotTheLauncherOfOne) {
  const Idle one, other;
  TrackedProcesses processes(nullptr);
  processes.found(one.id(), Rank{0}, /*only_told=*/true);
  processes.found(other.id(), Rank{0}, /*only_told=*/true);
  processes.found(one.id(), Rank{0}, /*only_told=*/false);
  processes.found(other.id(), Rank{1}, /*only_told=*/false);
  const std::vector<Watched> known = processes.known();
  ASSERT_EQ(known.size(), 2U);
  EXPECT_EQ(known[0].rank, Rank{0});
  EXPECT_EQ(known[1].rank, Rank{1});
}

TEST(TrackedProcesses, BesideOneThatFailedToJoinStandsWhoeverWasGivenItsNumberToo) {
  const Idle failed, waits;
  TrackedProcesses processes(nullptr);
  processes.found(failed.id(), Rank{0}, /*only_told=*/true);
  processes.found(waits.id(), Rank{0}, /*only_told=*/true);
  EXPECT_FALSE(processes.share_a_rank()) << "we started both";
  for (Tracked& process : processes.each())
    process.told.parent = 1, process.told.meets_at = "127.0.0.1:29500";
  EXPECT_TRUE(processes.share_a_rank());
  Tracked& first = processes.each().front();
  first.ended = os::ExitReport{.exit_status = 1};
  first.ended_ns = first.found_ns + 1'000'000'000;
  EXPECT_FALSE(processes.share_a_rank()) << "a helper may end";
  first.failed_to_join = true;
  EXPECT_TRUE(processes.share_a_rank());
  processes.believe(first);
  const Lineage lineage(nullptr);
  processes.forget_helpers(lineage);
  EXPECT_EQ(processes.each().size(), 2U);
  first.failed_to_join = false;
  processes.forget_helpers(lineage);
  EXPECT_EQ(processes.each().size(), 1U);
}

TEST(TrackedProcesses, OneAttemptAfterTheOtherAreBothTheRank) {
  TrackedProcesses processes(nullptr);
  std::vector<std::int32_t> pids;
  for (int attempt = 0; attempt < 2; ++attempt) {
    const Idle rank;
    pids.push_back(rank.pid);
    processes.found(rank.id(), Rank{0}, /*only_told=*/true);
    ::kill(rank.pid, SIGKILL);
    while (!processes.each().back().process.ended())
      ::usleep(1000);
    processes.take_end(processes.each().back());
  }
  processes.believe_the_rest();
  EXPECT_EQ(believed(processes), pids);
}

bool well(std::int32_t /*pid*/) { return false; }

TEST(TrackedProcesses, WhoeverWasThereCanTurnOutToHaveBeenARank) {
  TrackedProcesses processes(nullptr);
  os::ProcessId id, unheld;
  {
    const Idle rank, other;
    id = rank.id(), unheld = other.id();
    processes.hold({*os::read_process(rank.pid)}, well);
    processes.hold({}, well);
  }
  processes.hold({}, well);
  EXPECT_FALSE(processes.found(unheld, Rank{0}, /*only_told=*/false));
  EXPECT_TRUE(processes.found(id, Rank{1}, /*only_told=*/false));
  EXPECT_TRUE(processes.each().back().process.ended());
}

TEST(TrackedProcesses, WhoeverFailedIsKept) {
  TrackedProcesses processes(nullptr);
  os::ProcessId id;
  {
    const Idle rank;
    id = rank.id();
    processes.hold({*os::read_process(rank.pid)}, well);
  }
  const auto failed = [&](std::int32_t pid) { return pid == id.pid; };
  for (int look = 0; look < 3; ++look)
    processes.hold({}, failed);
  ASSERT_EQ(processes.failed().size(), 1U);
  EXPECT_EQ(processes.failed().front().id, id);
  EXPECT_TRUE(processes.found(id, Rank{1}, /*only_told=*/false));
  EXPECT_TRUE(processes.failed().empty());
}

TEST(TrackedProcesses, WhoeverEndedALookAgoIsLetGoOf) {
  TrackedProcesses processes(nullptr);
  os::ProcessId id;
  {
    const Idle rank;
    id = rank.id();
    processes.hold({*os::read_process(rank.pid)}, well);
  }
  processes.hold({}, well);
  processes.hold({}, well);
  EXPECT_FALSE(processes.found(id, Rank{1}, /*only_told=*/false));
}

}  // namespace
}  // namespace lockstep::launch
