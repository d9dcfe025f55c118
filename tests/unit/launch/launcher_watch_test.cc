// Goal: who started ranks and is killed while they live is told with its signal; who ends well, or
// after them, is not.
#include "harness/launch/launcher_watch.h"

#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "harness/base/clock.h"

namespace lockstep::launch {
namespace {

/// A launcher with a rank that it started, both children of a family of their own.
struct Job {
  pid_t launcher{}, rank{};
  Job() {
    ::prctl(PR_SET_CHILD_SUBREAPER, 1);
    int ends[2];
    EXPECT_EQ(::pipe(ends), 0);
    launcher = ::fork();
    if (launcher == 0) {
      const pid_t started = ::fork();
      while (started == 0)
        ::pause();
      (void)!::write(ends[1], &started, sizeof started);
      ::pause();
      ::_exit(0);
    }
    EXPECT_EQ(::read(ends[0], &rank, sizeof rank), static_cast<ssize_t>(sizeof rank));
    ::close(ends[0]);
    ::close(ends[1]);
    processes.add(Role::kRank, Rank{0}, *os::ProcessHandle::open(rank));
  }
  ~Job() {
    for (const pid_t pid : {launcher, rank}) {
      ::kill(pid, SIGKILL);
      ::waitpid(pid, nullptr, 0);
    }
  }
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  std::vector<LauncherEnd> look() {
    std::vector<os::ProcessStat> family;
    for (const pid_t pid : {launcher, rank}) {
      if (auto process = os::read_process(pid))
        family.push_back(*process);
    }
    return watch.look(family, processes);
  }
  /// Of the launcher, until it is seen.
  void ends_by(int signal) const {
    ::kill(launcher, signal);
    siginfo_t info{};
    EXPECT_EQ(::waitid(P_PID, static_cast<id_t>(launcher), &info, WEXITED | WNOWAIT), 0);
  }

  TrackedProcesses processes{nullptr};
  LauncherWatch watch{};
};

TEST(LauncherWatch, OneThatIsKilledWhileItsRankLives) {
  Job job;
  EXPECT_TRUE(job.look().empty());
  job.ends_by(SIGUSR1);
  const std::vector<LauncherEnd> ended = job.look();
  ASSERT_EQ(ended.size(), 1U);
  EXPECT_EQ(ended[0].pid, job.launcher);
  EXPECT_EQ(ended[0].signal, SIGUSR1);
  EXPECT_EQ(ended[0].ranks, RankSet{Rank{0}});
  EXPECT_EQ(ended[0].pids, std::vector<std::int32_t>{job.rank});
  EXPECT_TRUE(job.watch.is_orphan(job.rank));
  EXPECT_NE(
      LauncherWatch::told_of(ended[0], job.processes).find("was killed by SIGUSR1, and rank 0"),
      std::string::npos);
  EXPECT_TRUE(job.look().empty()) << "told once";
}

TEST(LauncherWatch, OneThatIsKilledAfterItsRankIsNone) {
  Job job;
  EXPECT_TRUE(job.look().empty());
  job.processes.each().front().ended = os::ExitReport{.exit_status = 0};
  job.ends_by(SIGUSR1);
  EXPECT_TRUE(job.look().empty());
}

}  // namespace
}  // namespace lockstep::launch
