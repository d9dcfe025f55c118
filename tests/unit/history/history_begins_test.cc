// What a process began comes back: what it began before it had a file, too, and of a forked child
// only its own; of very many from one line the first are told, and that there were more.
#include <gmock/gmock.h>
#include <sys/wait.h>

#include "tests/unit/history/history_support.h"

namespace lockstep::history {
namespace {

std::unique_ptr<Writer> writer_without_file(const TempDir& place) {
  WriterOptions options;
  options.directory = place.path().c_str();
  options.file_bytes = WriterFile::kFileBytesMin;
  options.at_first_group = true;
  return std::unique_ptr<Writer>(Writer::open(options));
}

std::uint32_t site_at(Writer& writer, std::int32_t line) {
  const SiteFrame frame{"train.py", 12, "main", line};
  return writer.define_site(static_cast<std::uint64_t>(line) << 8, &frame, 1);
}

void begin(Writer& writer, Begins what, std::uint32_t site, const char* path = "") {
  if (const BeginCount count = writer.count_begin(what, site); count.told)
    writer.tell_begin(what, site, count, path);
}

TEST(HistoryBegins, WhatWasBegunBeforeTheFileWasComesBack) {
  const TempDir place;
  const auto writer = writer_without_file(place);
  ASSERT_NE(writer, nullptr);
  ASSERT_TRUE(writer->remembers());
  writer->tell_begin(Begins::kNothing, 0, {}, "");
  begin(*writer, Begins::kThread, site_at(*writer, 20));
  EXPECT_FALSE(writer->begun());
  define(*writer, "0");
  begin(*writer, Begins::kFile, site_at(*writer, 30), "/data/a");

  const ProcessFile file = read_back(writer->path());
  ASSERT_EQ(file.process.begun.size(), 3U);
  EXPECT_EQ(file.process.begun[0].what, Begins::kNothing);
  const Begun& thread = file.process.begun[1];
  EXPECT_EQ(thread.what, Begins::kThread);
  EXPECT_LE(thread.at_ns, file.process.opened_ns);
  EXPECT_EQ(file.process.sites[thread.site].frames.front().line, 20);
  EXPECT_EQ(file.process.begun[2].path, "/data/a");
}

TEST(HistoryBegins, AChildTellsWhatItBeganItself) {
  const TempDir place;
  const auto writer = open_writer(place);
  writer->tell_begin(Begins::kNothing, 0, {}, "");
  define(*writer, "0");
  begin(*writer, Begins::kProcess, site_at(*writer, 20));
  const pid_t child = fork();
  if (child == 0) {
    begin(*writer, Begins::kThread, site_at(*writer, 40));
    begin(*writer, Begins::kThread, site_at(*writer, 20));
    define(*writer, "1");
    _exit(writer->begun() ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_EQ(status, 0);
  for (const auto& entry : std::filesystem::directory_iterator(place.path())) {
    const Process process = read_back(entry.path().string()).process;
    const bool is_child = process.pid == child;
    ASSERT_EQ(process.begun.size(), is_child ? 3U : 2U);
    EXPECT_EQ(process.sites[process.begun[1].site].frames.front().line, is_child ? 40 : 20);
  }
}

TEST(HistoryBegins, OfVeryManyTheFirstAreToldAndThatThereAreMore) {
  const TempDir place;
  const auto writer = open_writer(place, 64U << 20);
  define(*writer, "0");
  const std::uint32_t one = site_at(*writer, 20), other = site_at(*writer, 30);
  for (int i = 0; i < 5000; ++i) {
    begin(*writer, Begins::kThread, one);
    begin(*writer, Begins::kFile, other, "/data/a");
  }
  std::vector<std::uint32_t> threads, files;
  for (const Begun& begun : read_back(writer->path()).process.begun) {
    (begun.what == Begins::kThread ? threads : files).push_back(begun.count);
    EXPECT_EQ(begun.last_told, begun.what == Begins::kThread && begun.count == 1025);
  }
  EXPECT_EQ(threads.size(), 1025U);
  EXPECT_THAT(files, testing::ElementsAre(1, 2, 3, 4, 5, 6, 7, 8, 16, 32, 64, 128, 256, 512, 1024,
                                          2048, 4096));
}

TEST(HistoryBegins, OfVeryManyLinesNotAllAreToldAndThatThereAreMore) {
  const TempDir place;
  const auto writer = open_writer(place, 64U << 20);
  define(*writer, "0");
  for (std::int32_t line = 1; line <= 400; ++line)
    begin(*writer, Begins::kProcess, site_at(*writer, line));
  const std::vector<Begun> begun = read_back(writer->path()).process.begun;
  ASSERT_EQ(begun.size(), 193U);
  EXPECT_FALSE(begun[191].last_told);
  EXPECT_TRUE(begun[192].last_told);
  EXPECT_EQ(begun[192].site, 0U);
}

}  // namespace
}  // namespace lockstep::history
