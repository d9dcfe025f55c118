// A run directory from its creation to its reading back.
#include <gmock/gmock.h>

#include <fstream>

#include "harness/history/journal.h"
#include "harness/history/run_directory.h"
#include "harness/history/tensor_file.h"
#include "tests/unit/history/history_support.h"

namespace fs = std::filesystem;

namespace lockstep::history {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

/// Live files beside the run, as on a host without tmpfs.
RunOptions without_shm(const std::string& run_dir) { return {.run_dir = run_dir, .shm = ""}; }

/// Records one collective of rank 1 into `live`.
void record_one(const std::string& live) {
  WriterOptions options;
  options.directory = live.c_str();
  options.file_bytes = WriterFile::kFileBytesMin;
  options.rank = 1;
  const std::unique_ptr<Writer> writer(Writer::open(options));
  ASSERT_NE(writer, nullptr);
  const SiteFrame frame{"/lib/user.so", 64};
  Issue call = all_reduce(3);
  call.site = writer->define_site(1, &frame, 1);
  writer->returned_completed(writer->issue(define(*writer, "dp"), call));
  writer->close();
}

TEST(RunDirectory, ARunComesBack) {
  const TempDir place;
  auto made = RunDirectory::create({.run_dir = place / "run", .live_bytes = 1 << 20});
  ASSERT_TRUE(made) << made.error().what;
  ASSERT_TRUE(made->write_plan({.command = {"python", "train.py"},
                                .world_size = 2,
                                .scenario = "s",
                                .seed = ~0ULL,
                                .options = {{"broadcast", "on"}},
                                .case_id = "a/b",
                                .required = false,
                                .parameters = {{"w", 6}}}));
  auto journal = JournalWriter::create(made->journal());
  ASSERT_TRUE(journal);
  ASSERT_TRUE(write_tensors(made->tensors() + "/a",
                            {make_tensor("x", "F32", {2}, std::vector<double>{1, 2})}));
  const auto file = TensorFile::open(made->tensors() + "/a");
  Observation seen{.name = "grad/x",
                   .dtype = "F32",
                   .shape = {2},
                   .digest = file->entries()[0].digest,
                   .file = "tensors/a",
                   .key = "x"};
  ASSERT_TRUE(journal->append(seen));
  ASSERT_TRUE(journal->close());
  record_one(made->live());
  const std::string live = made->live();
  std::ofstream(live + "/4711.err") << "the shim keeps the last words of a process here";
  ASSERT_TRUE(made->close());
  EXPECT_TRUE(live == made->history() || !fs::exists(live));
  ASSERT_TRUE(write_symbols(made->path(), {{"/lib/user.so", 64, "user.cc", 12, "step"}}));

  const auto run = open_run(made->path());
  ASSERT_TRUE(run) << run.error().what;
  EXPECT_THAT(run->missing, ElementsAre());
  EXPECT_TRUE(run->journal_complete);
  EXPECT_EQ(run->plan.id, made->id());
  EXPECT_THAT(run->plan.command, ElementsAre("python", "train.py"));
  EXPECT_EQ(run->plan.seed, ~0ULL);
  EXPECT_EQ(run->plan.options.at("broadcast"), "on");
  EXPECT_EQ(run->plan.case_id, "a/b");
  EXPECT_FALSE(run->plan.required);
  EXPECT_EQ(run->plan.parameters.at(0).second, 6);
  ASSERT_EQ(run->processes.size(), 1U);
  EXPECT_TRUE(run->processes[0].closed);
  EXPECT_EQ(run->processes[0].collectives.size(), 1U);
  const Frame& frame = run->processes[0].sites.at(1).frames.at(0);
  EXPECT_EQ(frame.file, "user.cc");
  EXPECT_EQ(frame.line, 12);
  const auto tensor = run->tensor(run->observations.at(0));
  ASSERT_TRUE(tensor) << tensor.error().what;
  EXPECT_THAT(tensor->values, ElementsAre(1, 2));
  seen.digest = "0";
  EXPECT_EQ(run->tensor(seen).error().kind, Error::Kind::kMalformedHistory);
  seen.file = "../../etc/passwd";
  EXPECT_THAT(run->tensor(seen).error().what, HasSubstr("outside of the run"));
  made->drop_tensors();
  EXPECT_TRUE(fs::is_empty(made->tensors()));
}

TEST(RunDirectory, LiveFilesLieInTmpfsAndAreFoundThereAfterACrash) {
  struct stat status {};
  if (::stat("/dev/shm", &status) != 0)
    GTEST_SKIP() << "needs /dev/shm";
  const TempDir place;
  std::string live;
  {
    auto made = RunDirectory::create({.run_dir = place / "run", .live_bytes = 1 << 20});
    ASSERT_TRUE(made);
    ASSERT_TRUE(made->write_plan({}));
    live = made->live();
    if (live == made->history())
      GTEST_SKIP() << "needs a tmpfs with some room at /dev/shm";
    record_one(live);
    const auto run = open_run(made->path());  // As after a crash: nobody has moved them.
    ASSERT_TRUE(run);
    EXPECT_EQ(run->processes.size(), 1U);
  }
  EXPECT_FALSE(fs::exists(live));  // The destructor moved them.
  EXPECT_EQ(open_run(place / "run")->processes.size(), 1U);
}

TEST(RunDirectory, AProcessThatWasNotSeenInsideIsMissing) {
  const TempDir place;
  auto made = RunDirectory::create({.run_dir = place / "run", .live_bytes = 1 << 20});
  ASSERT_TRUE(made);
  ASSERT_TRUE(made->write_plan({}));
  auto journal = JournalWriter::create(made->journal());
  ASSERT_TRUE(journal && journal->close());
  std::ofstream(made->live() + "/4711.unseen") << "/opt/torch/lib/libtorch_cpu.so: no tap\n";
  ASSERT_TRUE(made->close());
  EXPECT_THAT(open_run(made->path())->missing,
              ElementsAre("process 4711 was not seen inside: "
                          "/opt/torch/lib/libtorch_cpu.so: no tap"));
}

TEST(RunDirectory, OnlyANewOrEmptyDirectoryIsTaken) {
  const TempDir place;
  EXPECT_TRUE(RunDirectory::create(without_shm(place.path())));  // Empty.
  const auto again = RunDirectory::create(without_shm(place.path()));
  ASSERT_FALSE(again);
  EXPECT_EQ(again.error().kind, Error::Kind::kUsage);
  EXPECT_THAT(again.error().what, HasSubstr("is not empty"));
  std::ofstream(place / "file") << "x";
  EXPECT_EQ(RunDirectory::create(without_shm(place / "file")).error().kind, Error::Kind::kUsage);
  const auto below = RunDirectory::create(without_shm(place / "file/run"));
  EXPECT_FALSE(below);
}

TEST(RunDirectory, CasesKeepTheirIds) {
  const TempDir place;
  const auto suite = RunDirectory::create(without_shm(place / "run"));
  ASSERT_TRUE(suite);
  const std::vector<std::string> ids{"../../x y", "a//b",
                                     "buffer-broadcast/ddp/w3/float64/broadcast=on", "plain"};
  for (const std::string& id : ids) {
    const auto one = suite->create_case(id);
    ASSERT_TRUE(one) << one.error().what;
    EXPECT_EQ(one->path(), case_path(suite->path(), id));
    EXPECT_EQ(fs::path(one->path()).lexically_normal().string().rfind(suite->path() + "/cases/", 0),
              0U);
    ASSERT_TRUE(one->write_plan({}));
    EXPECT_TRUE(open_run(one->path()));
  }
  EXPECT_EQ(case_ids(suite->path()), ids);
  EXPECT_EQ(case_path("r", ids[2]), "r/cases/" + ids[2]);
}

TEST(RunDirectory, OnlyTheNewestRunsAreKept) {
  const TempDir place;
  const std::string home = place / ".lockstep";
  const RunOptions options{.home = home, .keep = 3, .shm = ""};
  fs::create_directories(home + "/not-ours");
  for (int i = 0; i < 4; ++i)
    fs::create_directories(home + "/2020010" + std::to_string(i + 1) + "-000000-00ff");
  const auto open = RunDirectory::create({.home = home, .keep = 100, .shm = ""});
  ASSERT_TRUE(open);
  ASSERT_TRUE(RunDirectory::create(options));
  ASSERT_TRUE(RunDirectory::create(options));
  std::size_t runs = 0;
  for (const auto& entry : fs::directory_iterator(home))
    runs += entry.path().filename() != "not-ours" ? 1 : 0;
  EXPECT_EQ(runs, 3U);
  EXPECT_TRUE(fs::exists(home + "/not-ours"));
  EXPECT_TRUE(fs::exists(open->path()));
}

TEST(RunDirectory, WhatIsNoRunSaysSo) {
  const TempDir place;
  EXPECT_THAT(open_run(place / "none").error().what, HasSubstr("is not a directory"));
  EXPECT_THAT(open_run(place.path()).error().what, HasSubstr("has no run.json"));
  std::ofstream(place / "run.json") << "{}";
  EXPECT_EQ(open_run(place.path()).error().kind, Error::Kind::kMalformedHistory);
  std::ofstream(place / "run.json") << R"({"format":"lockstep-run/1","world_size":"x"})";
  EXPECT_THAT(open_run(place.path()).error().what, HasSubstr("wrong type"));
  std::ofstream(place / "run.json") << R"({"format":"lockstep-run/1"})";
  fs::create_directories(place / "history");
  std::ofstream(place / "history/a.lsh") << "garbage";
  const auto run = open_run(place.path());
  ASSERT_TRUE(run);
  EXPECT_FALSE(run->journal_complete);
  EXPECT_THAT(run->missing,
              ElementsAre(HasSubstr("a.lsh is not a history file"), HasSubstr("no journal")));
}

}  // namespace
}  // namespace lockstep::history
