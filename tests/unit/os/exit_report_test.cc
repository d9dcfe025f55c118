#include "harness/os/exit_report.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>

#include "harness/base/signal_name.h"
#include "harness/base/unique_fd.h"
#include "harness/os/pidfd.h"

namespace lockstep::os {
namespace {

using Clock = std::chrono::steady_clock;

template <class F>
ExitReport report_of_child(F child) {
  const pid_t pid = ::fork();
  if (pid == 0) {
    child();
    ::_exit(0);
  }
  const UniqueFd pidfd(pidfd_open(pid));
  const auto report = reap(pidfd.get(), Clock::now() + std::chrono::seconds(10));
  EXPECT_TRUE(report && *report);
  return report && *report ? **report : ExitReport{};
}

TEST(ExitReport, TellsExitFromSignal) {
  EXPECT_EQ(report_of_child([] { ::_exit(3); }).to_string(), "exited 3");
  EXPECT_TRUE(report_of_child([] {}).succeeded());
  const ExitReport killed = report_of_child([] { ::raise(SIGKILL); });
  EXPECT_EQ(killed.signal, SIGKILL);
  EXPECT_FALSE(killed.exit_status);
  EXPECT_EQ(killed.to_string(), "was killed by SIGKILL");
}

TEST(ExitReport, NamesSignals) {
  EXPECT_EQ(signal_name(SIGSEGV), "SIGSEGV");
  EXPECT_EQ(signal_name(SIGTERM), "SIGTERM");
  EXPECT_EQ(signal_name(SIGRTMIN + 3), "signal " + std::to_string(SIGRTMIN + 3));
}

TEST(ExitReport, LivingChildHasNone) {
  const pid_t pid = ::fork();
  if (pid == 0) {
    while (true)
      ::pause();
  }
  const UniqueFd pidfd(pidfd_open(pid));
  const auto early = reap(pidfd.get(), Clock::now());
  EXPECT_TRUE(early && !*early);
  ::kill(pid, SIGKILL);
  const auto late = reap(pidfd.get(), Clock::now() + std::chrono::seconds(10));
  ASSERT_TRUE(late && *late);
  EXPECT_FALSE(reap_if_ended(pidfd.get()).has_value()) << "reaped once, not twice";
}

}  // namespace
}  // namespace lockstep::os
