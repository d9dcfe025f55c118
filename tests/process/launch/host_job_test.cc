// Goal: one case's processes are watched truly: lines before ends, ends by pidfd, limits kept,
// leftovers found, and what we did ourselves is in the record of what came of it.
#include "harness/launch/host_job.h"

#include <sys/resource.h>

#include <algorithm>
#include <csignal>

#include "harness/history/follower.h"
#include "harness/history/journal.h"
#include "tests/process/launch/host_case.h"

namespace lockstep {
namespace {

using launch::Event;
using launch::HostJob;

class HostJobTest : public testing::HostCase {
 protected:
  void SetUp() override {
    testing::HostCase::SetUp();
    Result<history::JournalWriter> journal = history::JournalWriter::create(journal_path());
    ASSERT_TRUE(journal.has_value());
    journal_ = std::make_unique<history::JournalWriter>(std::move(*journal));
    options_.journal = journal_.get();
  }

  [[nodiscard]] std::string journal_path() const { return directory_ + "/lockstep.jsonl"; }

  [[nodiscard]] Run recorded() const {
    history::Follower follower(directory_, journal_path());
    follower.poll();
    return follower.run();
  }

  std::unique_ptr<history::JournalWriter> journal_;
};

TEST_F(HostJobTest, LinesComeBeforeTheEnd) {
  auto job = start(2);
  ASSERT_TRUE(job);
  EXPECT_EQ(ask(*job, 0, "echo", {{"text", "a"}})["text"], "a");
  send(*job, 1, "echo", {{"text", "b"}});
  send(*job, 1, "exit", {{"status", 3}});
  const Event line = job->wait(soon());
  EXPECT_EQ(line.kind, Kind::kLine);
  const Event end = job->wait(soon());
  EXPECT_EQ(end.kind, Kind::kEnded);
  EXPECT_EQ(end.host, 1U);
  EXPECT_EQ(end.status.exit_status, 3);
  EXPECT_TRUE(job->hosts()[1].ended);
  EXPECT_FALSE(job->send(1, "{}\n").has_value());
  send(*job, 0, "bye");
  EXPECT_EQ(job->wait(soon()).status.exit_status, 0);
  const launch::EndReport report = job->end("the case is over");
  EXPECT_TRUE(report.clean());
  EXPECT_TRUE(report.leftovers.empty());
  const Run run = recorded();
  EXPECT_EQ(run.starts.size(), 2U);
  ASSERT_EQ(run.ends.size(), 2U);
  EXPECT_EQ(run.ends[0].rank, Rank{1});
  EXPECT_EQ(run.ends[0].exit_status, 3);
  EXPECT_FALSE(run.ends[0].our_signal);
  EXPECT_TRUE(run.acted.empty());
}

TEST_F(HostJobTest, AKilledRankEndsBySignal) {
  auto job = start(1);
  ASSERT_TRUE(job);
  ::kill(job->hosts()[0].pid, SIGUSR1);
  const Event end = job->wait(soon());
  EXPECT_EQ(end.kind, Kind::kEnded);
  EXPECT_EQ(end.status.signal, SIGUSR1);
}

TEST_F(HostJobTest, DeadlineAndOurOwnKillAreOnRecord) {
  auto job = start(1);
  ASSERT_TRUE(job);
  send(*job, 0, "hang");
  EXPECT_EQ(job->wait(Clock::now() + std::chrono::milliseconds(50)).kind, Kind::kDeadline);
  const auto begin = Clock::now();
  EXPECT_TRUE(job->end("no answer to hang").clean());
  EXPECT_LT(Clock::now() - begin, std::chrono::seconds(2));
  const Run run = recorded();
  ASSERT_EQ(run.acted.size(), 2U);
  EXPECT_EQ(run.acted[0].action, "deadline");
  EXPECT_EQ(run.acted[1].action, "KILL");
  EXPECT_EQ(run.acted[1].rank, Rank{0});
  ASSERT_EQ(run.ends.size(), 1U);
  EXPECT_EQ(run.ends[0].signal, SIGKILL);
  EXPECT_EQ(run.ends[0].our_signal, SIGKILL);
  EXPECT_EQ(run.ends[0].our_reason, "no answer to hang");
}

TEST_F(HostJobTest, TermThenGraceThenKill) {
  options_.grace = std::chrono::milliseconds(300);
  auto job = start(2);
  ASSERT_TRUE(job);
  ask(*job, 1, "ignore_term");
  EXPECT_TRUE(job->end("interrupted", HostJob::How::kTerm).clean());
  const Run run = recorded();
  ASSERT_EQ(run.ends.size(), 2U);
  for (const ProcessEnd& end : run.ends) {
    const int expected = end.rank == Rank{0} ? SIGTERM : SIGKILL;
    EXPECT_EQ(end.signal, expected);
    EXPECT_EQ(end.our_signal, expected);
  }
}

TEST_F(HostJobTest, GarbageIsALineAndTooMuchIsAnError) {
  auto job = start(2);
  ASSERT_TRUE(job);
  send(*job, 0, "garbage", {{"bytes", 20}});
  const Event garbage = job->wait(soon());
  EXPECT_EQ(garbage.kind, Kind::kLine);
  EXPECT_EQ(garbage.text, std::string(20, 'x'));
  EXPECT_EQ(job->wait(soon()).kind, Kind::kLine) << "the answer behind it";
  send(*job, 1, "garbage", {{"bytes", 3 << 20}});
  const Event broken = job->wait(soon());
  EXPECT_EQ(broken.kind, Kind::kProtocol);
  EXPECT_EQ(broken.host, 1U);
  EXPECT_EQ(broken.text, "a line of more than 1 MiB");
}

TEST_F(HostJobTest, ClosedConversationIsNoEnd) {
  auto job = start(1);
  ASSERT_TRUE(job);
  send(*job, 0, "close");
  const Event event = job->wait(soon());
  EXPECT_EQ(event.kind, Kind::kProtocol);
  EXPECT_NE(event.text.find("closed its conversation and lives on"), std::string::npos)
      << event.text;
  EXPECT_FALSE(job->hosts()[0].ended);
}

TEST_F(HostJobTest, LogsAreBounded) {
  options_.log_bytes_max = 1000;
  auto job = start(1);
  ASSERT_TRUE(job);
  ask(*job, 0, "print", {{"bytes", 100'000}});
  job->end("the case is over");
  EXPECT_EQ(std::filesystem::file_size(options_.logs_directory + "/0.out"), 1000U);
  const Run run = recorded();
  ASSERT_EQ(run.notes.size(), 1U);
  EXPECT_NE(run.notes[0].text.find("0.out was cut at 1000 bytes"), std::string::npos);
}

TEST_F(HostJobTest, WhatARankLeavesBehindIsFoundAndEnded) {
  auto job = start(1);
  ASSERT_TRUE(job);
  const std::int32_t orphan = ask(*job, 0, "orphan")["pid"];
  EXPECT_NE(::getsid(orphan), ::getsid(0));
  send(*job, 0, "bye");
  EXPECT_EQ(job->wait(soon()).kind, Kind::kEnded);
  const launch::EndReport report = job->end("the case is over");
  EXPECT_TRUE(report.clean());
  ASSERT_EQ(report.leftovers.size(), 1U);
  EXPECT_EQ(report.leftovers[0].id.pid, orphan);
  EXPECT_FALSE(os::read_process(orphan));
  const Run run = recorded();
  ASSERT_EQ(run.acted.size(), 1U);
  EXPECT_EQ(run.acted[0].pid, orphan);
  EXPECT_EQ(run.acted[0].reason, "left behind: launch_fake_hos");
}

// --- Proof before patience
// ---------------------------------------------------------------------------------

// As the deadlock checker will ask: two equal readings of the main thread of each rank that hangs.
std::optional<std::string> two_equal_readings(const Run& run, std::size_t ranks) {
  std::map<std::int32_t, std::vector<const StateSample*>> of;
  for (const StateSample& sample : run.states)
    of[sample.pid].push_back(&sample);
  std::size_t still = 0;
  for (const auto& [pid, samples] : of) {
    if (samples.size() < 2 || samples.back()->threads.empty())
      continue;
    const StateSample& a = *samples[samples.size() - 2];
    const StateSample& b = *samples.back();
    EXPECT_GE(b.at_ns - a.at_ns, 200'000'000U);
    if (a.head == b.head && a.threads[0].context_switches == b.threads[0].context_switches &&
        a.threads[0].cpu_ns == b.threads[0].cpu_ns)
      ++still;
  }
  return still == ranks ? std::optional<std::string>("nobody moves") : std::nullopt;
}

class ProofTest : public HostJobTest {
 protected:
  void SetUp() override {
    HostJobTest::SetUp();
    follower_ = std::make_unique<history::Follower>(directory_, journal_path());
    options_.follower = follower_.get();
  }
  std::unique_ptr<history::Follower> follower_;
};

TEST_F(ProofTest, StopsWithinASecondOfTheLastEvent) {
  options_.stop_when = [](const Run& run) { return two_equal_readings(run, 3); };
  auto job = start(3);
  ASSERT_TRUE(job);
  const auto begin = Clock::now();
  for (std::size_t i = 0; i < 3; ++i)
    send(*job, i, "issue_and_hang", {{"count", 5}});
  const Event event = job->wait(soon());
  const auto took = std::chrono::duration<double, std::milli>(Clock::now() - begin);
  ASSERT_EQ(event.kind, Kind::kStop) << event.text;
  EXPECT_EQ(event.text, "nobody moves");
  std::printf("from the last event to the stop: %.0f ms\n", took.count());
  EXPECT_LT(took.count(), 1000.0);
  job->end(event.text);
  const Run run = recorded();
  EXPECT_EQ(run.states.size(), 6U);
  ASSERT_EQ(run.stacks.size(), 3U);
  for (const StackSample& sample : run.stacks) {
    const bool seen =
        std::any_of(sample.frames.begin(), sample.frames.end(), [](const Frame& frame) {
          return frame.function.find("hang_in_a_wait") != std::string::npos;
        });
    EXPECT_TRUE(seen) << "the wait is named";
    EXPECT_LT(sample.at_ns, run.states.front().at_ns)
        << "a ptrace stop is a context switch: stacks come first";
  }
}

TEST_F(ProofTest, NothingOutstandingIsNotLookedAt) {
  bool asked = false;
  options_.stop_when = [&](const Run&) {
    asked = true;
    return std::nullopt;
  };
  auto job = start(2);
  ASSERT_TRUE(job);
  send(*job, 0, "hang");
  EXPECT_EQ(job->wait(Clock::now() + std::chrono::milliseconds(600)).kind, Kind::kDeadline);
  EXPECT_FALSE(asked);
  EXPECT_LE(recorded().stacks.size(), 2U) << "one look at each, at the deadline";
}

double cpu_seconds() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

// A rank that only takes long must not be looked at for ever, nor cost a core.
TEST_F(ProofTest, FruitlessLooksBecomeRare) {
  int asked = 0;
  options_.stop_when = [&](const Run&) {
    ++asked;
    return std::nullopt;
  };
  auto job = start(3);
  ASSERT_TRUE(job);
  for (std::size_t i = 0; i < 3; ++i)
    send(*job, i, "issue_and_hang");
  const double before = cpu_seconds();
  const auto limit = std::chrono::seconds(6);
  EXPECT_EQ(job->wait(Clock::now() + limit).kind, Kind::kDeadline);
  const double share = (cpu_seconds() - before) / std::chrono::duration<double>(limit).count();
  std::printf("waiting costs %.2f %% of a core; asked %d times\n", share * 100, asked);
  EXPECT_GE(asked, 2);
  EXPECT_LE(asked, 6);
#ifdef __SANITIZE_THREAD__
  EXPECT_LE(share, 6 * 0.02);  // Six times as dear there.
#else
  EXPECT_LE(share, 0.02);
#endif
}

}  // namespace
}  // namespace lockstep
