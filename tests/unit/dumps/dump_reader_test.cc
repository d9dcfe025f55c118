#include "harness/history/dump_reader.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "harness/history/flight_recorder.h"
#include "tests/unit/dumps/typed_dumps.h"

namespace lockstep::history {
namespace {

using testing::calls;
using testing::DumpFolder;
using ::testing::HasSubstr;

/// What is wrong with it.
std::string problem(const std::string& bytes) {
  MemorySource source(std::as_bytes(std::span(bytes)));
  const auto head = read_dump(source, "x", [](const DumpEntry&, const DumpWords&) {});
  return head ? "" : head.error().what;
}

std::string pickle(const std::string& opcodes) { return "\x80\x02" + opcodes; }

std::string text(const std::string& value) {
  return "X" + std::string(1, static_cast<char>(value.size())) + std::string(3, '\0') + value;
}

TEST(DumpReader, ReadsAPickleWithoutEntries) {
  EXPECT_EQ(problem(pickle("}(" + text("version") + text("2.10") + "u.")), "");
}

TEST(DumpReader, RefusesWhatCanRunCode) {
  EXPECT_THAT(problem(pickle("cos\nsystem\n(" + text("ls") + "tR.")),
              HasSubstr("byte 2: opcode 0x63 of the pickle can run code"));
}

TEST(DumpReader, RefusesOtherOpcodes) {
  EXPECT_THAT(problem(pickle("2.")), HasSubstr("opcode 0x32"));
  EXPECT_THAT(problem("\x80\x09."), HasSubstr("protocol 9"));
}

TEST(DumpReader, TellsWhereAFileWasCut) {
  const std::string whole = pickle("}(" + text("version") + text("2.10") + "u.");
  for (std::size_t size = 2; size < whole.size(); ++size)
    EXPECT_THAT(problem(whole.substr(0, size)), HasSubstr("cut short")) << size;
  EXPECT_THAT(problem(""), HasSubstr("it is empty"));
  EXPECT_THAT(problem(R"({"version":"2.10","entries":[{"record_id":)"), HasSubstr("cut short"));
}

TEST(DumpReader, RefusesLengthsThatNoDumpHas) {
  EXPECT_THAT(problem(pickle("X\xff\xff\xff\xff")), HasSubstr("a text of 4294967295 bytes"));
  EXPECT_THAT(problem(pickle("\x8a\xff")), HasSubstr("an integer of 255 bytes"));
  EXPECT_THAT(problem(pickle(std::string("Nr\xff\xff\xff\x7f", 6))), HasSubstr("out of order"));
}

TEST(DumpReader, RefusesItemsOfNothing) {
  EXPECT_THAT(problem(pickle("u.")), HasSubstr("without its beginning"));
  EXPECT_THAT(problem(pickle("](Na.")), HasSubstr("no list or map"));
  EXPECT_THAT(problem(pickle("}(Nu.")), HasSubstr("a key without a value"));
  EXPECT_THAT(problem(pickle("\x86.")), HasSubstr("without its items"));
}

TEST(DumpReader, RefusesOtherVersions) {
  EXPECT_THAT(problem(R"({"version":"1.0"})"), HasSubstr("version 1.0 of the dump format"));
  EXPECT_THAT(problem(R"({"version":"2.3"})"), HasSubstr("need 2.4 to 2.10"));
  EXPECT_THAT(problem(R"({"version":"2.11"})"), HasSubstr("version 2.11"));
  EXPECT_THAT(problem(R"({"events":[]})"), HasSubstr("it has no version"));
  for (int minor = 4; minor <= 10; ++minor)
    EXPECT_EQ(problem(fmt::format(R"({{"version":"2.{}"}})", minor)), "");
}

TEST(DumpReader, RefusesDeepNests) {
  EXPECT_THAT(problem("{\"version\":" + std::string(100'000, '[')), HasSubstr("in one another"));
}

TEST(FlightRecorder, TakesTheRankFromTheName) {
  EXPECT_EQ(rank_in_name("/a7/nccl_trace_rank_12"), 12);
  EXPECT_EQ(rank_in_name("trace_3.json"), 3);
  EXPECT_EQ(rank_in_name("comm_lib_trace_rank_0_gloo_2"), 0);
  EXPECT_EQ(rank_in_name("notes.txt"), -1);
  EXPECT_EQ(rank_in_name("rank_99999999999"), -1);
}

TEST(FlightRecorder, TellsOfADumpThatMakesNoSense) {
  DumpFolder folder(2);
  folder.dump(0, calls(3));
  folder.raw("trace_rank_1.json", "{\"version\":");
  const auto run = open_dumps(folder.path());
  ASSERT_TRUE(run.has_value());
  ASSERT_EQ(run->missing.size(), 1U);
  EXPECT_THAT(run->missing.front(), HasSubstr("trace_rank_1.json"));
  EXPECT_EQ(run->processes.size(), 1U);
}

TEST(FlightRecorder, RefusesAFolderWithoutADumpThatCanBeRead) {
  DumpFolder folder(1);
  folder.raw("trace_rank_0", pickle("cos\nsystem\n."));
  const auto run = open_dumps(folder.path());
  ASSERT_FALSE(run.has_value());
  EXPECT_THAT(run.error().what, HasSubstr("can run code"));
}

TEST(FlightRecorder, PutsTheRingsOfOneRankTogether) {
  DumpFolder folder(1);
  folder.dump(0, calls(3));
  std::filesystem::copy(folder.path() + "/trace_rank_0.json",
                        folder.path() + "/gloo_trace_rank_0.json");
  const auto run = open_dumps(folder.path());
  ASSERT_TRUE(run.has_value());
  ASSERT_EQ(run->processes.size(), 1U);
  EXPECT_EQ(run->processes.front().collectives.size(), 3U);  // The same ring, twice.
}

}  // namespace
}  // namespace lockstep::history
