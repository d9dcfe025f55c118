// Goal: a wait of any job ends with the end of a process, with what else is waited for, or with an
// interrupt; that is told once.
#include "harness/launch/job_loop.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "harness/launch/interrupts.h"

namespace lockstep::launch {
namespace {

using std::chrono::seconds;

class Loop : public ::testing::Test {
 protected:
  Loop() : supervisor_(std::move(*Supervisor::unguarded())), loop_(*supervisor_, options_) {}
  static JobLoop::Clock::time_point soon() {
    return JobLoop::Clock::now() + std::chrono::milliseconds(30);
  }
  static JobLoop::Clock::time_point late() { return JobLoop::Clock::now() + seconds(30); }

  ProbeOptions options_{};
  std::unique_ptr<Supervisor> supervisor_;
  JobLoop loop_;
  std::vector<pollfd> others_{};
};

TEST_F(Loop, WaitsForTheEndOfAProcess) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    char byte{};
    (void)!::read(ends[0], &byte, 1);
    ::_exit(0);
  }
  const auto process = os::ProcessHandle::open(child);
  ASSERT_TRUE(process);
  EXPECT_FALSE(loop_.wait({&*process}, others_, soon())) << "it lives";
  ASSERT_EQ(::write(ends[1], "x", 1), 1);
  EXPECT_TRUE(loop_.wait({&*process}, others_, late()));
  EXPECT_TRUE(process->ended());
  ::waitpid(child, nullptr, 0);
  ::close(ends[0]);
  ::close(ends[1]);
}

TEST_F(Loop, TellsWhatElseIsReady) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  others_ = {{.fd = -1, .events = POLLIN, .revents = 0},
             {.fd = ends[0], .events = POLLIN, .revents = 0}};
  EXPECT_FALSE(loop_.wait({}, others_, soon()));
  ASSERT_EQ(::write(ends[1], "x", 1), 1);
  EXPECT_TRUE(loop_.wait({}, others_, late()));
  ASSERT_EQ(others_.size(), 2U) << "what the loop itself waits for is not told";
  EXPECT_EQ(others_[0].revents, 0);
  EXPECT_NE(others_[1].revents, 0);
  ::close(ends[0]);
  ::close(ends[1]);
}

// In a process of its own: signals are of all tests.
void is_interrupted_twice() {
  ::alarm(20);
  auto supervisor = Supervisor::unguarded();
  take_interrupts((*supervisor)->interrupt_fd(), /*guard=*/0);
  const ProbeOptions options;
  JobLoop loop(**supervisor, options);
  std::vector<pollfd> others;
  bool right = !loop.new_interrupt();
  for (const int signal : {SIGTERM, SIGINT}) {
    ::kill(::getpid(), signal);
    right = right && loop.wait({}, others, JobLoop::Clock::now() + seconds(10));
    right = right && loop.new_interrupt() == "SIGTERM" && !loop.new_interrupt();
    right = right && !loop.wait({}, others, JobLoop::Clock::now());
  }
  std::_Exit(right ? 0 : 1);
}

TEST(LoopDeathTest, TellsEachInterruptOnce) {
  EXPECT_EXIT(is_interrupted_twice(), ::testing::ExitedWithCode(0), "");
}

TEST_F(Loop, WithoutAFollowerNobodyIsLookedAt) {
  loop_.prober().something_happened();
  bool asked = false;
  const auto reason = loop_.probe([&] {
    asked = true;
    return std::vector<Watched>();
  });
  EXPECT_FALSE(reason);
  EXPECT_FALSE(asked) << "no look is due";
}

}  // namespace
}  // namespace lockstep::launch
