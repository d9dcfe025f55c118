// Goal: whichever link of the chain guard - supervisor - warm parent - rank is killed, nothing of
// the job lives 3 s later, the exit status is the documented one, and nothing else is touched.
// Method: run a lockstep in small, kill one link, and look from outside through /proc for the job's
// marker.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "tests/process/launch/chain_run.h"

namespace lockstep {
namespace {

using testing::ChainRun;
using Names = std::vector<std::string>;
namespace fs = std::filesystem;

TEST(Chain, KilledSupervisorLeavesNothing) {
  ChainRun chain({"orphan"});
  ASSERT_TRUE(chain.ready().contains("orphan")) << chain.errors();
  ChainRun::send(chain.pid("supervisor"), SIGKILL);
  EXPECT_EQ(chain.survivors(), Names{});
  EXPECT_EQ(chain.status().exit_status, 2);
  EXPECT_NE(chain.errors().find("the supervisor was killed by SIGKILL"), std::string::npos)
      << chain.errors();
  EXPECT_NE(chain.errors().find("`lockstep check " + chain.directory() + "`"), std::string::npos);
  EXPECT_TRUE(fs::exists(chain.directory() + "/history/rank0.lsh")) << "the live history is kept";
  EXPECT_FALSE(fs::exists(chain.directory() + "/live"));
  EXPECT_FALSE(fs::exists(chain.directory() + "/scratch"));
}

TEST(Chain, KilledGuardMakesTheSupervisorEndTheJob) {
  ChainRun chain({"orphan"});
  ASSERT_TRUE(chain.ready().contains("orphan")) << chain.errors();
  ChainRun::send(chain.pid("guard"), SIGKILL);
  // Here the guard leads the terminal's session, so the kernel hangs up as well; either may be seen
  // first.
  const ChainRun::Json stopping = chain.next_line();
  EXPECT_TRUE(stopping["stopping"] == "the guard was killed" || stopping["stopping"] == "SIGHUP")
      << stopping;
  EXPECT_EQ(chain.survivors(), Names{});
  EXPECT_FALSE(fs::exists(chain.directory() + "/scratch"));
}

TEST(Chain, KilledWarmParentDoesNotDisturbItsRanks) {
  ChainRun chain({});
  ASSERT_TRUE(chain.ready().contains("ranks")) << chain.errors();
  const auto rank = os::ProcessHandle::open(chain.rank(0));
  ChainRun::send(chain.pid("warm"), SIGKILL);
  ChainRun::send(chain.pid("guard"), SIGTERM);
  EXPECT_EQ(chain.next_line()["stopping"], "SIGTERM");
  EXPECT_EQ(chain.survivors(), Names{});
  EXPECT_EQ(chain.status().exit_status, 7);
}

TEST(Chain, KilledRankIsReportedAndTheJobGoesOn) {
  ChainRun chain({});
  ASSERT_TRUE(chain.ready().contains("ranks")) << chain.errors();
  ChainRun::send(chain.rank(1), SIGKILL);
  EXPECT_EQ(chain.next_line()["ended"], "was killed by SIGKILL");
  chain.type('\x03');
  EXPECT_EQ(chain.next_line()["stopping"], "SIGINT");
  EXPECT_EQ(chain.survivors(), Names{});
  EXPECT_EQ(chain.status().exit_status, 7);
}

TEST(Chain, AbortedSupervisorIsOurBug) {
  ChainRun chain({"body_aborts"});
  ASSERT_TRUE(chain.ready().contains("job"));
  EXPECT_EQ(chain.survivors(), Names{});
  EXPECT_EQ(chain.status().exit_status, 134);
  EXPECT_NE(chain.errors().find("a bug of lockstep"), std::string::npos) << chain.errors();
}

TEST(Chain, FirstCtrlCEndsInGoodOrder) {
  ChainRun chain({"orphan"});
  ASSERT_TRUE(chain.ready().contains("orphan")) << chain.errors();
  chain.type('\x03');
  EXPECT_EQ(chain.next_line()["stopping"], "SIGINT");
  const ChainRun::Json end = chain.next_line();
  EXPECT_EQ(end["clean"], true);
  EXPECT_EQ(end["leftovers"], ChainRun::Json::array({chain.pid("orphan")}));
  EXPECT_EQ(chain.survivors(), Names{});
  EXPECT_EQ(chain.status().exit_status, 7) << "one Ctrl-C counts once";
}

TEST(Chain, SecondCtrlCKillsAtOnce) {
  ChainRun chain({"ignore_term", "orphan"});  // so that the first one waits for the grace time
  ASSERT_TRUE(chain.ready().contains("orphan")) << chain.errors();
  chain.type('\x03');
  EXPECT_EQ(chain.next_line()["stopping"], "SIGINT");
  chain.type('\x03');
  EXPECT_EQ(chain.survivors(), Names{});
  EXPECT_EQ(chain.status().exit_status, 130);
}

TEST(Chain, SignalToTheWholeGroupCountsOnce) {
  ChainRun chain({});
  ASSERT_TRUE(chain.ready().contains("ranks")) << chain.errors();
  ::kill(-chain.pid("guard"), SIGINT);
  EXPECT_EQ(chain.next_line()["stopping"], "SIGINT");
  EXPECT_EQ(chain.survivors(), Names{});
  EXPECT_EQ(chain.status().exit_status, 7);
}

TEST(Chain, HangUpEndsInGoodOrder) {
  ChainRun chain({});
  ASSERT_TRUE(chain.ready().contains("ranks")) << chain.errors();
  ChainRun::send(chain.pid("guard"), SIGHUP);
  EXPECT_EQ(chain.next_line()["stopping"], "SIGHUP");
  EXPECT_EQ(chain.survivors(), Names{});
}

// Each of ours in turn is stopped; what it would have done must wait, and nothing may die of it.
TEST(Chain, StoppingOneOfOursKillsNothing) {
  for (const char* role : {"guard", "supervisor", "warm"}) {
    SCOPED_TRACE(role);
    ChainRun chain({});
    ASSERT_TRUE(chain.ready().contains("ranks")) << chain.errors();
    const pid_t stopped = chain.pid(role);
    ChainRun::send(stopped, SIGSTOP);
    // A second is long against the chain's reactions, which are immediate; nothing is to be waited
    // for.
    const auto rank = os::ProcessHandle::open(chain.rank(0));
    ASSERT_TRUE(rank);
    EXPECT_FALSE(rank->wait_ended(ChainRun::Clock::now() + std::chrono::seconds(1)));
    for (const char* other : {"guard", "supervisor", "warm"})
      EXPECT_TRUE(os::read_process(chain.pid(other)) &&
                  !os::read_process(chain.pid(other))->zombie())
          << other;
    ChainRun::send(stopped, SIGCONT);
    ChainRun::send(chain.pid("guard"), SIGTERM);
    EXPECT_EQ(chain.next_line()["stopping"], "SIGTERM");
    EXPECT_EQ(chain.survivors(), Names{});
    EXPECT_EQ(chain.status().exit_status, 7);
  }
}

TEST(Chain, TwoCasesWithOneWarmParent) {
  ChainRun chain({"two_cases", "orphan"});
  ASSERT_TRUE(chain.ready().contains("orphan")) << chain.errors();
  const pid_t warm = chain.pid("warm");
  const ChainRun::Json first_end = chain.next_line();
  EXPECT_EQ(first_end["clean"], true);
  EXPECT_EQ(first_end["leftovers"], ChainRun::Json::array({chain.pid("orphan")}));
  const ChainRun::Json second = chain.next_line();
  EXPECT_EQ(second["warm"], warm);
  EXPECT_FALSE(os::read_process(chain.pid("orphan"))) << "found, ended and reaped with its case";
  for (std::size_t i = 0; i < 2; ++i)
    EXPECT_FALSE(os::read_process(chain.rank(i))) << "no zombie";
}

// Two processes that only look like ours: one of the same name, and a child that our guard was born
// with.
TEST(Chain, BystandersSurvive) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const pid_t bystander = ::fork();
  if (bystander == 0) {
    ::dup2(ends[1], STDOUT_FILENO);
    ::execl(LAUNCH_FAKE_HOST, LAUNCH_FAKE_HOST, "--bystander", nullptr);
    ::_exit(127);
  }
  char ready = 0;
  ASSERT_EQ(::read(ends[0], &ready, 1), 1);
  {
    // The guard leads the terminal's session here; the kernel's hang-up at its end is not what is
    // asked about.
    ChainRun chain({}, "trap '' HUP; " + std::string(LAUNCH_FAKE_HOST) +
                           " --bystander >/dev/null & echo $! >&2;");
    ASSERT_TRUE(chain.ready().contains("ranks")) << chain.errors();
    const pid_t inherited = std::stoi(chain.errors());
    EXPECT_EQ(os::read_process(inherited)->parent, chain.pid("guard"));
    ChainRun::send(chain.pid("supervisor"), SIGKILL);
    EXPECT_EQ(chain.survivors(), Names{});
    EXPECT_EQ(chain.status().exit_status, 2);
    const auto stat = os::read_process(inherited);
    EXPECT_TRUE(stat && stat->state == 'S') << "a child from before us is not ours to end";
    ::kill(inherited, SIGKILL);
    ::waitpid(inherited, nullptr, 0);
  }
  const auto stat = os::read_process(bystander);
  EXPECT_TRUE(stat && !stat->zombie());
  ::kill(bystander, SIGKILL);
  ::waitpid(bystander, nullptr, 0);
  ::close(ends[0]);
  ::close(ends[1]);
}

}  // namespace
}  // namespace lockstep
