// Goal: the line that began what is there is named where it is certain, and none where two come
// into question.
#include "harness/model/begun.h"

#include <gtest/gtest.h>

#include "tests/support/typed_run.h"

namespace lockstep::testing {
namespace {

using history::Begins;

constexpr std::int32_t kPid = 1001;
constexpr std::uint64_t kThen = kStart + 500 * kMs;
constexpr std::uint32_t kMany = 400;

/// Rank 1, which has been seen from its start.
lockstep::Run watched() {
  lockstep::Run run = make_run({{all_reduce("dp", 4)}, {all_reduce("dp", 4)}});
  run.processes[1].begun.push_back({.what = Begins::kNothing, .at_ns = kStart});
  return run;
}

std::uint32_t site_at(Process& process, std::int32_t line) {
  CallSite& site = process.sites.emplace_back();
  site.frames.push_back({"/usr/lib/python3.11/threading.py",
                         1,
                         "/usr/lib/python3.11/threading.py",
                         957,
                         "Thread.start",
                         {}});
  site.frames.push_back({"t.py", static_cast<std::uint64_t>(line), "t.py", line, "main", {}});
  return static_cast<std::uint32_t>(process.sites.size() - 1);
}

Begun& begin(lockstep::Run& run, Begins what, std::int32_t line, std::uint64_t at_ns) {
  Process& process = run.processes[1];
  const std::uint32_t site = site_at(process, line);
  return process.begun.emplace_back(Begun{.what = what, .at_ns = at_ns, .site = site, .count = 1});
}

std::int32_t thread_line(const lockstep::Run& run) {
  const auto site = thread_begun_at(run, kPid, kThen);
  return site ? site->line : 0;
}

TEST(Begun, AThreadIsOfTheLineThatBeganOneThen) {
  lockstep::Run run = watched();
  begin(run, Begins::kThread, 10, kThen - 400 * kMs);
  begin(run, Begins::kThread, 20, kThen + 4 * kMs);  // The kernel counts in ticks of 10 ms.
  begin(run, Begins::kThread, 30, kThen + 200 * kMs);
  begin(run, Begins::kProcess, 40, kThen);
  EXPECT_EQ(thread_line(run), 20);
  EXPECT_EQ(thread_begun_at(run, kPid, kThen)->role, "started");
  EXPECT_FALSE(thread_begun_at(run, 1000, kThen));
  EXPECT_FALSE(thread_begun_at(run, kPid, 0));
}

TEST(Begun, TwoLinesAtOneTimeAreNone) {
  lockstep::Run run = watched();
  begin(run, Begins::kThread, 20, kThen + 4 * kMs);
  begin(run, Begins::kThread, 20, kThen - 4 * kMs);
  EXPECT_EQ(thread_line(run), 20);
  begin(run, Begins::kThread, 30, kThen - 30 * kMs);
  EXPECT_EQ(thread_line(run), 0);
}

TEST(Begun, WhatMayHaveBegunUntoldIsNone) {
  lockstep::Run run = watched();
  begin(run, Begins::kThread, 20, kThen);
  EXPECT_EQ(thread_line(run), 20);
  Begun& last = begin(run, Begins::kThread, 30, kThen - 300 * kMs);
  last.last_told = true;
  EXPECT_EQ(thread_line(run), 0);
  run.processes[1].begun.back().at_ns = kThen + 300 * kMs;
  EXPECT_EQ(thread_line(run), 20);
  run.processes[1].begun.back().at_ns = kThen - 300 * kMs;
  run.processes[1].begun.back().site = 0;  // From any line.
  EXPECT_EQ(thread_line(run), 0);
  run.processes[1].begun.pop_back();
  run.processes[1].begun.front().at_ns = kThen + 1;  // Nobody looked before that.
  EXPECT_EQ(thread_line(run), 0);
}

std::int32_t process_line(const lockstep::Run& run, const std::string& name,
                          std::vector<Ancestor> lineage) {
  Leftover left{.kind = "process", .name = name, .pid = lineage.front().pid};
  left.lineage = std::move(lineage);
  const auto site = process_begun_at(run, left);
  return site ? site->line : 0;
}

TEST(Begun, AProcessIsOfTheLineThatBeganItOrTheOneAboveIt) {
  lockstep::Run run = watched();
  begin(run, Begins::kProcess, 20, kThen);
  EXPECT_EQ(process_line(run, "sleep 9", {{7, kThen}, {kPid, kStart}}), 20);
  EXPECT_EQ(process_line(run, "sleep 9", {{8, kThen + 900 * kMs}, {7, kThen}, {kPid, kStart}}), 20);
  EXPECT_EQ(process_line(run, "sleep 9", {{8, kThen}, {7, kThen + 900 * kMs}, {kPid, kStart}}), 0);
  EXPECT_EQ(process_line(run, "sleep 9", {{7, kThen}}), 0) << "whose child it was is not known";
  EXPECT_EQ(process_line(run, "sleep 9", {{7, kThen}, {1000, kStart}}), 0) << "not seen";
}

TEST(Begun, AProcessThatMultiprocessingSpawnedIsToldBehindItsStart) {
  const std::string spawned =
      "python -c from multiprocessing.spawn import spawn_main; spawn_main()";
  lockstep::Run run = watched();
  begin(run, Begins::kSpawned, 20, kThen + 40 * kMs);
  EXPECT_EQ(process_line(run, spawned, {{7, kThen}, {kPid, kStart}}), 20);
  begin(run, Begins::kProcess, 30, kThen);
  EXPECT_EQ(process_line(run, spawned, {{7, kThen}, {kPid, kStart}}), 20);
  EXPECT_EQ(process_line(run, "python t.py", {{7, kThen}, {kPid, kStart}}), 0);
  EXPECT_EQ(process_line(run, "python -c from multiprocessing.resource_tracker import main",
                         {{7, kThen}, {kPid, kStart}}),
            0);
}

/// Rank 1 has many files open more than at first, which are called /data/0 and so on.
void leak(lockstep::Run& run) {
  Descriptors first{.at_ns = kStart, .rank = Rank{1}, .pid = kPid, .open = 10, .limit = 1024};
  first.files = {{"/log", 1}};
  Descriptors last = first;
  last.at_ns = kThen;
  last.open += kMany;
  for (std::uint32_t i = 0; i < kMany / 2; ++i)
    last.files.emplace_back("/data/" + std::to_string(i), 1);
  run.descriptors = {first, last};
}

std::int32_t opening_line(const lockstep::Run& run) {
  const auto site = files_begun_at(run, run.descriptors[0], run.descriptors[1]);
  return site ? site->line : 0;
}

TEST(Begun, FilesAreOfTheLineThatOpenedThemAndAsMany) {
  lockstep::Run run = watched();
  leak(run);
  begin(run, Begins::kFile, 10, kStart).path = "/log";
  begin(run, Begins::kFile, 20, kStart).path = "/data/0";
  EXPECT_EQ(opening_line(run), 0) << "one does not make hundreds";
  Begun& later = begin(run, Begins::kFile, 20, kStart);
  later.path = "/data/127";
  later.count = 128;
  EXPECT_EQ(opening_line(run), 20);
  begin(run, Begins::kFile, 30, kStart).path = "/data/3";  // It may have closed it again, or not.
  EXPECT_EQ(opening_line(run), 0);
}

TEST(Begun, FilesThatNoLineOpenedAreOfNone) {
  lockstep::Run run = watched();
  leak(run);
  Begun& begun = begin(run, Begins::kFile, 20, kStart);
  begun.path = "/other";
  begun.count = 512;
  EXPECT_EQ(opening_line(run), 0);
}

}  // namespace
}  // namespace lockstep::testing
