// Full and read-only places: records are lost and counted, the program goes on, errors say what to
// do.
#include <gmock/gmock.h>
#include <sys/mount.h>
#include <sys/wait.h>

#include <fstream>

#include "harness/history/journal.h"
#include "harness/history/run_directory.h"
#include "harness/history/tensor_file.h"
#include "tests/unit/history/history_support.h"

namespace lockstep::history {
namespace {

using testing::HasSubstr;

/// A tmpfs of its own size, in this process's own mount namespace; none where that is not
/// permitted.
class SmallDisk {
 public:
  explicit SmallDisk(const std::string& options) {
    mounted_ = ::unshare(CLONE_NEWNS) == 0 &&
               ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
               ::mount("tmpfs", place_.path().c_str(), "tmpfs", 0, options.c_str()) == 0;
  }
  ~SmallDisk() {
    if (mounted_)
      ::umount2(place_.path().c_str(), MNT_DETACH);
  }
  [[nodiscard]] bool mounted() const { return mounted_; }
  [[nodiscard]] const TempDir& place() const { return place_; }

 private:
  TempDir place_;
  bool mounted_{};
};

#define LS_NEEDS_MOUNT(disk) \
  if (!(disk).mounted())     \
  GTEST_SKIP() << "needs the right to mount a tmpfs"

std::string only_file(const TempDir& place) {
  return std::filesystem::directory_iterator(place.path())->path().string();
}

TEST(HistoryDisk, ARingOnAFullDiskWrapsEarly) {
  const SmallDisk disk("size=6m");
  LS_NEEDS_MOUNT(disk);
  const auto writer = open_writer(disk.place(), kDefaultFileBytes);  // Base areas and one step fit.
  ASSERT_NE(writer, nullptr);
  const GroupHandle dp = define(*writer, "dp");
  for (std::uint64_t i = 0; i < 100000; ++i)
    writer->returned_completed(writer->issue(dp, all_reduce(i)));
  writer->close();
  const Process process = read_back(writer->path()).process;
  EXPECT_TRUE(process.closed);
  EXPECT_TRUE(process.is_complete(0));
  EXPECT_EQ(process.groups[0].issued, 100000U);
  EXPECT_EQ(process.dropped, 100000 - process.collectives.size());
  EXPECT_GE(process.collectives.size(), 8192U);
  EXPECT_LE(process.collectives.size(), 32768U);
}

TEST(HistoryDisk, ADiskTooFullForTheBaseKeepsAHeaderThatCounts) {
  const SmallDisk disk("size=64k");
  LS_NEEDS_MOUNT(disk);
  const auto writer = open_writer(disk.place());
  ASSERT_NE(writer, nullptr);
  const GroupHandle dp = define(*writer, "dp");
  for (std::uint64_t i = 0; i < 100; ++i)
    writer->returned_completed(writer->issue(dp, all_reduce(i)));
  writer->close();
  const Process process = read_back(only_file(disk.place())).process;
  EXPECT_EQ(process.dropped, 100U);
  EXPECT_TRUE(process.groups.empty());
  EXPECT_EQ(process.pid, getpid());
}

TEST(HistoryDisk, ADiskWithoutRoomForAHeaderGivesNoWriterAndNoFile) {
  const SmallDisk disk("size=8k");
  LS_NEEDS_MOUNT(disk);
  std::ofstream(disk.place() / "fill") << std::string(8192, 'x');
  EXPECT_EQ(open_writer(disk.place()), nullptr);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(disk.place().path()), {}), 1);
}

TEST(HistoryDisk, ARunDirectoryOnAFullDiskSaysHaveAndNeed) {
  const SmallDisk disk("size=64k");
  LS_NEEDS_MOUNT(disk);
  const auto run = RunDirectory::create({.run_dir = disk.place() / "run", .shm = ""});
  ASSERT_FALSE(run);
  EXPECT_EQ(run.error().kind, Error::Kind::kEnvironment);
  EXPECT_THAT(run.error().what, HasSubstr("bytes are free, need"));
  EXPECT_THAT(run.error().help, HasSubstr("--run-dir"));
  EXPECT_FALSE(std::filesystem::exists(disk.place() / "run"));
}

TEST(HistoryDisk, ARunDirectoryInAReadOnlyPlaceSaysSo) {
  const SmallDisk disk("size=64k,ro");
  LS_NEEDS_MOUNT(disk);
  const auto run = RunDirectory::create({.run_dir = disk.place() / "run", .shm = ""});
  ASSERT_FALSE(run);
  EXPECT_EQ(run.error().kind, Error::Kind::kEnvironment);
  EXPECT_THAT(run.error().what, HasSubstr("Read-only file system"));
}

TEST(HistoryDisk, JournalAndTensorsReportAFullDiskAndStayReadable) {
  const SmallDisk disk("size=64k");
  LS_NEEDS_MOUNT(disk);
  auto journal = JournalWriter::create(disk.place() / "j");
  ASSERT_TRUE(journal);
  ASSERT_TRUE(journal->append(Note{.at_ns = 1, .text = "fits"}));
  EXPECT_FALSE(journal->append(Note{.at_ns = 2, .text = std::string(100000, 'x')}));
  const auto big = make_tensor("x", "F64", {20000}, std::vector<double>(20000));
  const auto refused = write_tensors(disk.place() / "t", {big});
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().what, HasSubstr("No space left"));
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(disk.place().path()), {}), 1);
  ASSERT_TRUE(journal->append(Note{.at_ns = 3, .text = "fits again"}));
  EXPECT_FALSE(journal->close());
  lockstep::Run run;
  JournalReader(*FileSource::open(disk.place() / "j"), "j").poll(run, true);
  EXPECT_EQ(run.notes.size(), 2U);
  EXPECT_FALSE(run.journal_complete);
}

TEST(HistoryDisk, LiveFilesThatCannotBeMovedAreStillFound) {
  const SmallDisk disk("size=4m");
  LS_NEEDS_MOUNT(disk);
  const TempDir shm;
  SmallDisk big_shm("size=64m");
  LS_NEEDS_MOUNT(big_shm);
  auto run = RunDirectory::create(
      {.run_dir = disk.place() / "run", .shm = big_shm.place().path(), .live_bytes = 1 << 20});
  ASSERT_TRUE(run) << run.error().what;
  ASSERT_NE(run->live(), run->history());
  ASSERT_TRUE(run->write_plan({}));
  WriterOptions options;
  options.directory = run->live().c_str();
  options.file_bytes = 16U << 20;
  const std::unique_ptr<Writer> writer(Writer::open(options));
  ASSERT_NE(writer, nullptr);
  const GroupHandle dp = define(*writer, "dp");
  for (std::uint64_t i = 0; i < 80000; ++i)
    writer->returned_completed(writer->issue(dp, all_reduce(i)));
  writer->close();
  const auto closed = run->close();
  ASSERT_FALSE(closed);
  EXPECT_THAT(closed.error().what, HasSubstr("it was left there"));
  const auto read = open_run(run->path());
  ASSERT_TRUE(read);
  EXPECT_EQ(read->processes.at(0).groups.at(0).issued, 80000U);
}

}  // namespace
}  // namespace lockstep::history
