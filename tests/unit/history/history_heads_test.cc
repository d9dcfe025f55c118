// What locksteps of several hosts tell each other: read back as it was written, of one job only,
// and the history that they let others read.
#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>

#include "harness/history/heads.h"
#include "harness/history/journal.h"
#include "tests/unit/history/history_support.h"

namespace lockstep::history {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::Pair;

Heads heads(const TempDir& job, const std::string& name, RankSet ranks) {
  fs::create_directory(job / name);
  return {.directory = job / name,
          .host = name,
          .meets_at = "10.0.0.1:29500",
          .world_size = 4,
          .ranks = std::move(ranks)};
}

TEST(HistoryHeads, AreReadBackAsTheyWereWritten) {
  const TempDir job;
  Heads told = heads(job, "node2", {Rank{2}, Rank{3}});
  told.beat = 7;
  told.still_ms = 1'500;
  told.waits = told.again = told.ends = true;
  told.doing = {"rank 2: in all_reduce"};
  told.addresses = {"10.0.0.2"};
  told.question = 3;
  told.answered["node1"] = 2;
  told.verdict = "rank 1 has not entered";
  ASSERT_TRUE(write_heads(told));
  const std::vector<Heads> read = heads_beside(job / "node1");
  ASSERT_EQ(read.size(), 1U);
  EXPECT_EQ(read[0].name(), "node2");
  EXPECT_EQ(read[0].host, "node2");
  EXPECT_EQ(read[0].beat, 7U);
  EXPECT_EQ(read[0].ranks, (RankSet{Rank{2}, Rank{3}}));
  EXPECT_EQ(read[0].still_ms, 1'500U);
  EXPECT_TRUE(read[0].waits && read[0].again && read[0].ends && !read[0].closed);
  EXPECT_THAT(read[0].doing, ElementsAre("rank 2: in all_reduce"));
  EXPECT_THAT(read[0].addresses, ElementsAre("10.0.0.2"));
  EXPECT_EQ(read[0].question, 3U);
  EXPECT_THAT(read[0].answered, ElementsAre(Pair("node1", 2)));
  EXPECT_EQ(read[0].verdict, "rank 1 has not entered");
  EXPECT_TRUE(heads_beside(job / "node2").empty()) << "its own are not beside it";
}

TEST(HistoryHeads, WhatMakesNoSenseIsNotThere) {
  const TempDir job;
  for (const char* const text : {"", "{", "[]", R"({"beat":"no number"})"}) {
    fs::create_directory(job / "node1");
    std::ofstream(job / "node1/heads.json") << text;
    EXPECT_TRUE(heads_beside(job / "node2").empty()) << text;
  }
}

TEST(HistoryHeads, AreOfOneJobIfItsRanksMeet) {
  const TempDir job;
  const Heads one = heads(job, "node1", {Rank{0}, Rank{1}});
  Heads other = heads(job, "node2", {Rank{2}, Rank{3}});
  EXPECT_TRUE(are_of_one_job(one, other));
  other.meets_at = "10.0.0.1:29501";
  EXPECT_FALSE(are_of_one_job(one, other)) << "another job, at another port";
  other = heads(job, "node2", {Rank{1}, Rank{2}});
  EXPECT_FALSE(are_of_one_job(one, other)) << "one rank is on both";
  other = heads(job, "node2", {Rank{2}, Rank{3}});
  other.world_size = 8;
  EXPECT_FALSE(are_of_one_job(one, other));
  Heads nowhere = one, neither = heads(job, "node2", {Rank{2}, Rank{3}});
  nowhere.meets_at = neither.meets_at = "";
  EXPECT_FALSE(are_of_one_job(nowhere, neither)) << "nobody knows where";
}

TEST(HistoryHeads, ASnapshotHasTheLastCallsOfALongHistory) {
  const TempDir job;
  auto directory = RunDirectory::create({.run_dir = job / "node1", .shm = job.path()});
  ASSERT_TRUE(directory);
  ASSERT_TRUE(directory->write_plan({.world_size = 4}));
  auto journal = JournalWriter::create(directory->journal());
  ASSERT_TRUE(journal);
  ASSERT_TRUE(journal->append(Note{.at_ns = 1, .text = "a"}));
  WriterOptions options;
  options.directory = directory->live().c_str();
  options.file_bytes = kDefaultFileBytes;
  options.rank = 1;
  options.world_size = 4;
  const std::unique_ptr<Writer> writer(Writer::open(options));
  ASSERT_NE(writer, nullptr);
  const GroupHandle dp = define(*writer, "dp");
  constexpr std::uint64_t kCalls = 20'000;
  Ticket last{};
  for (std::uint64_t i = 0; i < kCalls; ++i) {
    last = writer->issue(dp, all_reduce(5));
    if (i + 1 < kCalls) {
      writer->returned(last);
      writer->completed(last);
    }
  }
  ASSERT_TRUE(write_snapshot(*directory));
  const Result<lockstep::Run> run = read_snapshot(directory->path());
  ASSERT_TRUE(run) << run.error().what;
  EXPECT_TRUE(run->live);
  EXPECT_EQ(run->notes.size(), 1U);
  ASSERT_EQ(run->processes.size(), 1U);
  const Process& process = run->processes[0];
  EXPECT_EQ(process.groups.at(0).issued, kCalls);
  EXPECT_TRUE(process.is_complete(0)) << "counts tell of what is not there";
  ASSERT_GE(process.collectives.size(), 4'000U);
  EXPECT_EQ(process.collectives.back().seq, kCalls - 1);
  EXPECT_FALSE(process.collectives.back().completed_ns);
  EXPECT_LT(process.collectives.size(), 5'000U);
  // Once more, after it went on.
  writer->returned(last);
  writer->completed(last);
  ASSERT_TRUE(write_snapshot(*directory));
  EXPECT_TRUE(read_snapshot(directory->path())->processes.at(0).collectives.back().completed_ns);
  remove_snapshot(directory->path());
  EXPECT_TRUE(read_snapshot(directory->path())->processes.empty());
}

}  // namespace
}  // namespace lockstep::history
