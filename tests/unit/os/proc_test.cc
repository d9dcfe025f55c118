#include "harness/os/proc.h"

#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <thread>

namespace lockstep::os {
namespace {

TEST(Proc, ReadsThisProcess) {
  const auto self = read_process(::getpid());
  ASSERT_TRUE(self);
  EXPECT_EQ(self->parent, ::getppid());
  EXPECT_EQ(self->group, ::getpgrp());
  EXPECT_EQ(self->session, ::getsid(0));
  EXPECT_GT(self->id.start_ticks, 0U);
  EXPECT_FALSE(self->zombie());
}

TEST(Proc, NameMayHoldSpacesAndParentheses) {
  ::prctl(PR_SET_NAME, "a) R 1 (b");
  const auto self = read_process(::getpid());
  ASSERT_TRUE(self);
  EXPECT_EQ(self->name, "a) R 1 (b");
  EXPECT_EQ(self->parent, ::getppid());
}

TEST(Proc, NoSuchProcess) { EXPECT_FALSE(read_process(0x3fffffff)); }

TEST(Proc, DescendantsOfNobodyElse) {
  const std::vector<ProcessStat> processes{{.id = {2, 1}, .parent = 1}, {.id = {3, 1}, .parent = 2},
                                           {.id = {4, 1}, .parent = 3}, {.id = {5, 1}, .parent = 1},
                                           {.id = {6, 1}, .parent = 7},   // a torn picture
                                           {.id = {7, 1}, .parent = 6}};  // with a loop in it
  std::vector<std::int32_t> pids;
  for (const ProcessStat& process : descendants_of(2, processes))
    pids.push_back(process.id.pid);
  EXPECT_EQ(pids, (std::vector<std::int32_t>{3, 4}));
}

TEST(Proc, KnowsASleepingThread) {
  std::thread([] {}).join();  // A sanitizer may then have one of its own.
  const std::size_t others = count_threads(::getpid());
  std::mutex mutex;
  std::condition_variable wake;
  bool done = false;
  std::int32_t tid = 0;
  std::thread thread([&] {
    std::unique_lock lock(mutex);
    tid = ::gettid();
    wake.notify_all();
    wake.wait(lock, [&] { return done; });
  });
  {
    std::unique_lock lock(mutex);
    wake.wait(lock, [&] { return tid != 0; });
  }
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (!sleeps_in_restartable_wait(::getpid(), tid) &&
         std::chrono::steady_clock::now() < deadline)
    std::this_thread::yield();
  EXPECT_TRUE(sleeps_in_restartable_wait(::getpid(), tid));
  EXPECT_FALSE(sleeps_in_restartable_wait(::getpid(), ::gettid())) << "this thread runs";
  EXPECT_EQ(count_threads(::getpid()), others + 1);
  const std::vector<ThreadStat> before = read_threads(::getpid());
  const std::vector<ThreadStat> after = read_threads(::getpid());
  ASSERT_EQ(before.size(), others + 1);
  ASSERT_EQ(after.size(), others + 1);
  EXPECT_EQ(before.back().tid, tid);
  EXPECT_EQ(before.back().state, 'S');
  EXPECT_GT(before.back().context_switches, 0U);
  EXPECT_EQ(before.back().context_switches, after.back().context_switches);
  EXPECT_EQ(before.back().cpu_ns, after.back().cpu_ns);
  EXPECT_GT(after[0].cpu_ns, 0U);
  {
    const std::unique_lock lock(mutex);
    done = true;
  }
  wake.notify_all();
  thread.join();
}

TEST(Proc, TheLastPidIsThatOfAThreadToo) {
  const auto before = last_pid();
  if (!before)
    GTEST_SKIP() << "not told here";
  std::int32_t tid = 0;
  std::thread([&] { tid = ::gettid(); }).join();
  EXPECT_NE(last_pid(), before);
  EXPECT_TRUE(tid < *before || last_pid() >= tid) << "the numbers may have begun again";
}

TEST(Proc, EnvironmentEntryIsMatchedWhole) {
  // /proc shows the environment at exec, which the test runner's PATH is part of.
  const std::string path = std::string("PATH=") + ::getenv("PATH");
  EXPECT_TRUE(has_environment_entry(::getpid(), path));
  EXPECT_FALSE(has_environment_entry(::getpid(), path.substr(0, path.size() - 1)));
  EXPECT_FALSE(has_environment_entry(::getpid(), path.substr(1)));
  EXPECT_FALSE(has_environment_entry(::getpid(), ""));
}

TEST(Proc, IdsDiffer) {
  EXPECT_EQ(unique_id().size(), 32U);
  EXPECT_NE(unique_id(), unique_id());
}

}  // namespace
}  // namespace lockstep::os
