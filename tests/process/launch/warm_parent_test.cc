// Goal: ranks forked from a warm parent are ours alone, start fast, and a broken link of the chain
// is an error that says which.
#include "harness/launch/warm_parent.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <csignal>
#include <thread>

#include "tests/process/launch/host_case.h"

namespace lockstep {
namespace {

using WarmParentTest = testing::HostCase;

TEST_F(WarmParentTest, RankIsOurChildWithAllThatIsItsOwn) {
  auto job = start(2);
  ASSERT_TRUE(job);
  for (std::size_t i = 0; i < 2; ++i) {
    const Json answer = ask(*job, i, "whoami");
    const std::int32_t pid = job->hosts()[i].pid;
    EXPECT_EQ(answer["pids"], Json::array({pid, ::getpid(), pid})) << "pid, parent, process group";
    EXPECT_EQ(ask(*job, i, "environment", {{"name", "RANK"}})["value"], std::to_string(i));
    EXPECT_EQ(ask(*job, i, "environment", {{"name", "LOCKSTEP_JOB"}})["value"],
              supervisor_->job_id());
    ask(*job, i, "print", {{"bytes", 3}});
    EXPECT_EQ(contents(options_.logs_directory + "/" + std::to_string(i) + ".out"), "ppp\n");
  }
  EXPECT_EQ(os::count_threads(warm_->process()->pid()), 1U);
}

TEST_F(WarmParentTest, ForkIsFast) {
  ASSERT_TRUE(warm_->ensure_started().has_value());
  std::vector<double> each_ms;
  for (int i = 0; i < 10; ++i) {
    const auto begin = Clock::now();
    auto job = start(2);
    ASSERT_TRUE(job);
    each_ms.push_back(std::chrono::duration<double, std::milli>(Clock::now() - begin).count() / 2);
    ask(*job, 1, "echo");
  }
  std::sort(each_ms.begin(), each_ms.end());
  RecordProperty("fork_ms_median", std::to_string(each_ms[5]));
  std::printf("fork of a rank: median %.2f ms, worst %.2f ms\n", each_ms[5], each_ms.back());
#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
  EXPECT_LE(each_ms[5], 60.0);
#endif
}

TEST_F(WarmParentTest, DeadOneIsStartedAnew) {
  { const auto job = start(1); }
  const os::ProcessId first = warm_->process()->id();
  warm_->process()->signal(SIGKILL);
  ASSERT_TRUE(warm_->process()->wait_ended(soon()));
  const auto job = start(1);
  ASSERT_TRUE(job);
  EXPECT_NE(warm_->process()->id(), first);
}

TEST_F(WarmParentTest, ProgramThatIsNotThere) {
  launch::WarmParent absent(*supervisor_,
                            {.command = {"/no/such/program"}, .log_file = directory_ + "/log"});
  const Result<void> started = absent.ensure_started();
  ASSERT_FALSE(started);
  EXPECT_EQ(started.error().kind, Error::Kind::kEnvironment);
  EXPECT_NE(started.error().what.find("/no/such/program"), std::string::npos)
      << started.error().what;
}

TEST_F(WarmParentTest, ProgramThatExitsAtOnce) {
  launch::WarmParent wrong(*supervisor_, {.command = {"false"}, .log_file = directory_ + "/log"});
  const Result<void> started = wrong.ensure_started();
  ASSERT_FALSE(started);
  EXPECT_NE(started.error().what.find("exited 1"), std::string::npos) << started.error().what;
}

// The fork stalls in the intermediate process, which says its pid; a second thread kills one link
// of the chain.
class BrokenChain : public testing::HostCase {
 protected:
  // Kills what `choose` makes of the intermediate's pid, and returns the error that starting a rank
  // gives.
  template <class Choose>
  std::string error_after(Choose choose) {
    const std::string fifo = directory_ + "/stall";
    EXPECT_EQ(::mkfifo(fifo.c_str(), 0666), 0);
    warm_ = std::make_unique<launch::WarmParent>(
        *supervisor_, launch::WarmOptions{.command = {LAUNCH_FAKE_HOST},
                                          .environment = {{"FAKE_STALL", "intermediate"}},
                                          .log_file = fifo});
    std::thread killer([&] {
      std::ifstream log(fifo);
      std::string word;
      pid_t intermediate = 0;
      log >> word >> intermediate;
      ::kill(choose(intermediate), SIGKILL);
    });
    const auto job = launch::HostJob::start(*supervisor_, options_, ranks(1));
    killer.join();
    EXPECT_FALSE(job.has_value());
    return job ? "" : job.error().what;
  }
};

TEST_F(BrokenChain, IntermediateKilled) {
  const std::string error = error_after([](pid_t intermediate) { return intermediate; });
  EXPECT_NE(error.find("the intermediate process died"), std::string::npos) << error;
}

TEST_F(BrokenChain, WarmParentKilledWhileItForks) {
  const std::string error =
      error_after([](pid_t intermediate) { return os::read_process(intermediate)->parent; });
  EXPECT_NE(error.find("was killed by SIGKILL; asked to fork a rank"), std::string::npos) << error;
}

}  // namespace
}  // namespace lockstep
