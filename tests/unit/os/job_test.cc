// Goal: what is ours is ended, whatever it does to get away, and nothing else is ever signalled.
#include "harness/os/job.h"

#include <gtest/gtest.h>
#include <linux/sched.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdlib>

#include "harness/os/exit_report.h"

namespace lockstep::os {
namespace {

using Clock = std::chrono::steady_clock;
constexpr auto kLimit = std::chrono::seconds(10);

void pause_for_ever() {
  while (true)
    ::pause();
}

template <class F>
pid_t child_that(F does) {
  const pid_t pid = ::fork();
  if (pid == 0) {
    does();
    ::_exit(0);
  }
  return pid;
}

bool lives(pid_t pid) {
  const auto stat = read_process(pid);
  return stat && !stat->zombie();
}

// A new child with this very pid; 0 where the kernel does not let us choose.
pid_t child_with_pid(pid_t pid) {
  clone_args arguments{};
  arguments.exit_signal = SIGCHLD;
  arguments.set_tid = reinterpret_cast<std::uint64_t>(&pid);
  arguments.set_tid_size = 1;
  const long got = ::syscall(SYS_clone3, &arguments, sizeof arguments);
  if (got == 0)
    pause_for_ever();
  return got > 0 ? static_cast<pid_t>(got) : 0;
}

TEST(ProcessHandle, SignalsTheOneThatIsMeant) {
  const pid_t pid = child_that(pause_for_ever);
  Result<ProcessHandle> handle = ProcessHandle::open(pid);
  ASSERT_TRUE(handle);
  EXPECT_FALSE(handle->ended());
  EXPECT_TRUE(handle->signal(SIGTERM));
  EXPECT_EQ(handle->last_signal(), SIGTERM);
  EXPECT_TRUE(handle->wait_ended(Clock::now() + kLimit));
  const auto report = reap(handle->pidfd(), Clock::now() + kLimit);
  ASSERT_TRUE(report && *report);
  EXPECT_EQ((*report)->signal, SIGTERM);
  EXPECT_FALSE(handle->signal(SIGTERM)) << "it is gone";
}

TEST(ProcessHandle, MayEndWhileItIsOpened) {
  for (int i = 0; i < 3000; ++i) {
    const auto end = Clock::now() + std::chrono::microseconds(i % 300);
    const pid_t pid = child_that([&] {
      while (Clock::now() < end) {
      }
    });
    const Result<ProcessHandle> handle = ProcessHandle::open(pid);
    ASSERT_TRUE(handle) << handle.error().what << ", after " << i;
    EXPECT_EQ(handle->id().pid, pid);
    ::waitpid(pid, nullptr, 0);
  }
}

TEST(ProcessHandle, AnotherStartTimeIsAnotherProcess) {
  const pid_t pid = child_that(pause_for_ever);
  const ProcessId id = read_process(pid)->id;
  EXPECT_TRUE(ProcessHandle::open(id));
  EXPECT_FALSE(ProcessHandle::open(ProcessId{pid, id.start_ticks + 1}));
  ::kill(pid, SIGKILL);
  ::waitpid(pid, nullptr, 0);
  EXPECT_FALSE(ProcessHandle::open(id));
  EXPECT_FALSE(ProcessHandle::open(pid).has_value());
}

TEST(ProcessHandle, RecycledPidIsNotSignalled) {
  const pid_t pid = child_that(pause_for_ever);
  Result<ProcessHandle> handle = ProcessHandle::open(pid);
  ASSERT_TRUE(handle);
  ::kill(pid, SIGKILL);
  ::waitpid(pid, nullptr, 0);
  const pid_t successor = child_with_pid(pid);
  if (successor == 0)
    GTEST_SKIP() << "needs CAP_CHECKPOINT_RESTORE to choose a pid, have none";
  ASSERT_EQ(successor, pid);
  EXPECT_FALSE(handle->signal(SIGKILL));
  EXPECT_TRUE(lives(successor));
  ::kill(successor, SIGKILL);
  ::waitpid(successor, nullptr, 0);
}

// Descends from us through processes that are gone, in a session of its own.
TEST(EndEverything, FindsWhatForkedTwice) {
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe(ends.data()), 0);
  const pid_t middle = child_that([&] {
    ::setsid();
    const pid_t orphan = child_that(pause_for_ever);
    EXPECT_EQ(::write(ends[1], &orphan, sizeof orphan), static_cast<ssize_t>(sizeof orphan));
  });
  pid_t orphan = 0;
  ASSERT_EQ(::read(ends[0], &orphan, sizeof orphan), static_cast<ssize_t>(sizeof orphan));
  ::waitpid(middle, nullptr, 0);
  std::vector<pid_t> announced;
  const auto ended = end_everything({.ancestor = ::getpid()}, Clock::now() + kLimit,
                                    {.before_kill = [&](const ProcessStat& process) {
                                      EXPECT_TRUE(lives(process.id.pid));
                                      announced.push_back(process.id.pid);
                                    }});
  ASSERT_EQ(ended.size(), 1U);
  EXPECT_EQ(ended[0].id.pid, orphan);
  EXPECT_TRUE(ended[0].gone);
  EXPECT_EQ(announced, std::vector<pid_t>{orphan});
  EXPECT_FALSE(read_process(orphan)) << "reaped as well";
}

void keep_forking() {
  for (int generation = 0; generation < 100'000; ++generation) {
    ::usleep(3'000);
    if (::fork() != 0)
      ::_exit(0);
  }
}

// A tree that grows while it is being ended, faster than evidence of its processes is written down.
TEST(EndEverything, CatchesWhatKeepsForking) {
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
  child_that(keep_forking);
  const EndHooks slow{.before_kill = [](const ProcessStat&) { ::usleep(100'000); }};
  end_everything({.ancestor = ::getpid()}, Clock::now() + kLimit, slow);
  EXPECT_TRUE(members_of({.ancestor = ::getpid()}).empty());
}

// Nothing of it is ever our child, and nobody leaves us its zombies.
TEST(EndEverything, CatchesWhatKeepsForkingUnderAnotherReaper) {
  for (int again = 0; again < 10; ++again) {
    const pid_t reaper = child_that([] {
      ::prctl(PR_SET_CHILD_SUBREAPER, 1);
      child_that(keep_forking);
      while (true)
        ::waitpid(-1, nullptr, 0);
    });
    const Family family{.ancestor = reaper};
    while (members_of(family).empty())
      ::usleep(1'000);
    end_everything(family, Clock::now() + kLimit);
    for (int look = 0; look < 20; ++look)
      EXPECT_TRUE(members_of(family).empty()) << "round " << again;
    ::kill(reaper, SIGKILL);
    ::waitpid(reaper, nullptr, 0);
    end_everything({.ancestor = ::getpid()}, Clock::now() + kLimit);
  }
}

TEST(EndEverything, SparesWhatItIsToldToSpare) {
  const pid_t spared = child_that([] {
    child_that(pause_for_ever);
    pause_for_ever();
  });
  const pid_t ended = child_that(pause_for_ever);
  const Family family{.ancestor = ::getpid(), .spared = {read_process(spared)->id}};
  const auto report = end_everything(family, Clock::now() + kLimit);
  EXPECT_TRUE(lives(spared));
  EXPECT_FALSE(read_process(ended));
  EXPECT_EQ(report.size(), 1U);
  end_everything({.ancestor = ::getpid()}, Clock::now() + kLimit);
  EXPECT_FALSE(read_process(spared));
}

TEST(EndEverything, LeavesZombiesToTheHook) {
  const pid_t pid = child_that([] { ::_exit(5); });
  Result<ProcessHandle> handle = ProcessHandle::open(pid);
  ASSERT_TRUE(handle && handle->wait_ended(Clock::now() + kLimit));
  std::optional<ExitReport> report;
  bool killed = false;
  end_everything({.ancestor = ::getpid()}, Clock::now() + kLimit,
                 {.before_kill = [&](const ProcessStat&) { killed = true; },
                  .reap = [&](const ProcessStat&) { report = *reap_if_ended(handle->pidfd()); }});
  EXPECT_FALSE(killed);
  ASSERT_TRUE(report);
  EXPECT_EQ(report->exit_status, 5);
}

// Its own environment is empty, so only its parent tells.
TEST(Members, DescendantsOfOneThatIsMarked) {
  const std::string marker = "LOCKSTEP_TEST=" + unique_id();
  const pid_t marked = child_that([&] {
    ::execle("/bin/sh", "sh", "-c", "env -i sleep 60 & wait", nullptr,
             std::array<const char*, 2>{marker.c_str(), nullptr}.data());
  });
  const Family family{.marker = marker};
  const auto deadline = Clock::now() + kLimit;
  while (Clock::now() < deadline &&
         (members_of(family).size() < 2 || members_of(family).back().name != "sleep"))
    ::usleep(10'000);
  const std::vector<ProcessStat> members = members_of(family);
  ASSERT_EQ(members.size(), 2U);
  EXPECT_EQ(members[0].id.pid, marked);
  EXPECT_EQ(members[1].parent, marked);
  EXPECT_FALSE(has_environment_entry(members[1].id.pid, marker));
  end_everything(family, Clock::now() + kLimit);
  EXPECT_FALSE(lives(members[1].id.pid));
}

// Neither its environment nor its parent tells any more, but the leader of its session does.
TEST(Members, WhoeverIsInTheSessionOfOneThatIsMarked) {
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
  const std::string marker = "LOCKSTEP_TEST=" + unique_id();
  const pid_t leader = child_that([&] {
    ::setsid();
    ::execle("/bin/sh", "sh", "-c", "(env -i sleep 60 &); sleep 60; :", nullptr,
             std::array<const char*, 2>{marker.c_str(), nullptr}.data());
  });
  const Family family{.marker = marker};
  const auto orphan = [&]() -> std::optional<ProcessStat> {
    for (ProcessStat& member : members_of(family)) {
      if (member.name == "sleep" && member.parent == ::getpid())
        return member;
    }
    return std::nullopt;
  };
  const auto deadline = Clock::now() + kLimit;
  while (Clock::now() < deadline && !orphan())
    ::usleep(10'000);
  const std::optional<ProcessStat> found = orphan();
  ASSERT_TRUE(found);
  EXPECT_FALSE(has_environment_entry(found->id.pid, marker));
  EXPECT_EQ(found->session, leader);
  end_everything({.ancestor = ::getpid()}, Clock::now() + kLimit);
}

TEST(Members, NeverTheCallerNorWhatIsAboveIt) {
  const Family like_us{.marker = std::string("PATH=") + ::getenv("PATH")};
  ASSERT_TRUE(has_environment_entry(::getpid(), like_us.marker));
  for (const ProcessStat& member : members_of(like_us)) {
    EXPECT_NE(member.id.pid, ::getpid());
    EXPECT_NE(member.id.pid, ::getppid());
  }
}

TEST(EndEverything, NobodyWithoutAncestorAndMarker) { EXPECT_TRUE(members_of({}).empty()); }

}  // namespace
}  // namespace lockstep::os
