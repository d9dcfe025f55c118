// What a killed writer announced is in its file. Each round a child announces every committed
// record on a pipe and dies by SIGKILL at some instant; then what the pipe holds must be in the
// file.
#include <gmock/gmock.h>
#include <sys/wait.h>

#include <array>
#include <random>
#include <thread>

#include "harness/base/unique_fd.h"
#include "tests/unit/history/history_support.h"

namespace lockstep::history {
namespace {

constexpr int kThreads = 2;
constexpr std::uint64_t kRingAtLeast =
    8192;  // What the ring still holds for sure, in-flight records aside.

struct Announced {
  std::uint64_t record;
  std::uint32_t thread;
  std::uint32_t group;
};

/// In the child: writes until it is killed. A pipe write of this size is whole or not at all.
[[noreturn]] void write_for_ever(const TempDir& place, int announce) {
  const auto writer = open_writer(place);
  if (writer == nullptr)
    _exit(1);
  const GroupHandle groups[] = {define(*writer, "a"), define(*writer, "b")};
  std::vector<std::thread> threads;
  for (std::uint32_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (std::uint64_t i = 0;; ++i) {
        const Ticket ticket = writer->issue(groups[(t + i) % 2], all_reduce(i));
        const Announced said{ticket.record, t, static_cast<std::uint32_t>((t + i) % 2)};
        if (::write(announce, &said, sizeof said) != sizeof said)
          _exit(2);
        writer->returned_completed(ticket);
      }
    });
  }
  threads[0].join();
  _exit(3);
}

/// Drains the pipe while the child lives, and kills it after a given number of announcements.
std::vector<Announced> drain_and_kill(int pipe, pid_t child, std::uint64_t kill_after) {
  std::vector<Announced> all;
  Announced said{};
  bool killed = false;
  while (::read(pipe, &said, sizeof said) == sizeof said) {
    all.push_back(said);
    if (!killed && all.size() >= kill_after) {
      ::kill(child, SIGKILL);
      killed = true;
    }
  }
  return all;
}

TEST(HistoryKill, WhatWasAnnouncedIsInTheFile) {
  std::mt19937 random(static_cast<std::uint32_t>(testing::UnitTest::GetInstance()->random_seed()) +
                      1U);
  for (int round = 0; round < 200; ++round) {
    const TempDir place;
    int ends[2];
    ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
    const UniqueFd in(ends[0]);
    UniqueFd out(ends[1]);
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0)
      write_for_ever(place, out.get());
    out.reset();
    const auto announced =
        drain_and_kill(in.get(), child, 1 + random() % (round % 10 == 0 ? 20000 : 500));
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);

    const auto name = std::filesystem::directory_iterator(place.path())->path();
    const ProcessFile file = read_back(name.string());
    const Process& process = file.process;
    SCOPED_TRACE("round " + std::to_string(round) + ", " + name.string());
    EXPECT_FALSE(process.damaged);
    EXPECT_FALSE(process.closed);
    EXPECT_TRUE(process.is_complete(0) && process.is_complete(1));
    // A thread may have been killed inside one record more than it announced.
    ASSERT_FALSE(process.collectives.empty());
    const std::uint64_t last = process.collectives.back().record;
    EXPECT_LE(last + 1, announced.size() + 2 * kThreads);
    std::uint64_t lost = 0;
    auto at = process.collectives.begin();
    std::vector<Announced> sorted = announced;
    std::sort(sorted.begin(), sorted.end(), [](auto& a, auto& b) { return a.record < b.record; });
    for (const Announced& said : sorted) {
      at = std::lower_bound(
          at, process.collectives.end(), said.record,
          [](const Collective& c, std::uint64_t record) { return c.record < record; });
      const bool there =
          at != process.collectives.end() && at->record == said.record && at->group == said.group;
      lost += !there && said.record + kRingAtLeast > last ? 1 : 0;
    }
    EXPECT_EQ(lost, 0U);
    if (HasFailure())
      break;
  }
}

TEST(HistoryKill, TenMillionCollectivesThenSilence) {
  const TempDir place;
  constexpr std::uint64_t kMany = 10'000'000;
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const auto writer = open_writer(place, kDefaultFileBytes);
    const GroupHandle dp = define(*writer, "dp");
    for (std::uint64_t i = 0; i < kMany; ++i)
      writer->returned_completed(writer->issue(dp, all_reduce(i % 7)));
    writer->issue(dp, all_reduce(8));
    ::raise(SIGKILL);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  const auto path = std::filesystem::directory_iterator(place.path())->path().string();
  EXPECT_LE(std::filesystem::file_size(path), kDefaultFileBytes);
  const Process process = read_back(path).process;
  EXPECT_TRUE(process.is_complete(0));
  EXPECT_EQ(process.groups.at(0).issued, kMany + 1);
  EXPECT_EQ(process.groups[0].completed, kMany);
  EXPECT_EQ(process.groups[0].digests.size(), kMany / kDigestBlock);
  EXPECT_EQ(process.groups[0].last_signatures.size(), kLastSignatures);
  EXPECT_GT(process.collectives.size(), 450'000U);
  EXPECT_EQ(process.dropped, kMany + 1 - process.collectives.size());
  EXPECT_EQ(process.collectives.back().seq, kMany);
  EXPECT_FALSE(process.collectives.back().returned_ns);
}

}  // namespace
}  // namespace lockstep::history
