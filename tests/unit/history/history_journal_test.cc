// The journal gives back what was appended; a tear, garbage, a gap and a missing end are each said.
#include <gmock/gmock.h>
#include <sys/resource.h>

#include <csignal>
#include <fstream>

#include "harness/history/journal.h"
#include "tests/unit/history/history_support.h"

namespace lockstep::history {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

lockstep::Run read_journal(const std::string& text) {
  lockstep::Run run;
  JournalReader reader(std::make_unique<MemorySource>(std::as_bytes(std::span(text))),
                       "lockstep.jsonl");
  reader.poll(run, true);
  return run;
}

std::string three_notes() {
  return R"({"n":1,"e":"note","t":5,"text":"a"})"
         "\n"
         R"({"n":2,"e":"note","t":6,"text":"b"})"
         "\n"
         R"({"n":3,"e":"mark","t":7,"name":"c"})"
         "\n"
         R"({"n":4,"e":"closed","t":0,"records":3})"
         "\n";
}

TEST(HistoryJournal, EveryEventComesBack) {
  const TempDir place;
  const std::string path = place / "lockstep.jsonl";
  auto writer = JournalWriter::create(path);
  ASSERT_TRUE(writer);
  ASSERT_TRUE(writer->append(ProcessStart{.at_ns = 1, .role = Role::kReference, .pid = 71}));
  ASSERT_TRUE(writer->append(ProcessEnd{.at_ns = 2,
                                        .role = Role::kRank,
                                        .rank = Rank{0},
                                        .pid = 72,
                                        .signal = 9,
                                        .our_signal = 15,
                                        .our_reason = "deadlock"}));
  ASSERT_TRUE(writer->append(
      Acted{.at_ns = 3, .action = "TERM", .rank = Rank{2}, .pid = 73, .reason = "why \xff"}));
  ASSERT_TRUE(writer->append(StateSample{.at_ns = 4,
                                         .rank = Rank{1},
                                         .pid = 74,
                                         .head = 9,
                                         .threads = {{75, 'S', "futex_wait", 11, 12}},
                                         .held_by = {Rank{0}, Rank{2}}}));
  StackSample stack{
      .at_ns = 5, .pid = 74, .tid = 75, .frames = {{"libc.so", 16, "a.c", 3, "wait"}}};
  stack.handles = "KeyError: 2";
  stack.raised_at.frames = {{"t.py", 7, "t.py", 7, "lookup", {{5, "step", true}}, "", true}};
  ASSERT_TRUE(writer->append(stack));
  Request request{.at_ns = 6, .role = Role::kRank, .rank = Rank{1}, .id = 8, .message = "step"};
  ASSERT_TRUE(writer->append(request));
  request.answered_ns = 7;
  request.outcome = "failed";
  request.text = "no";
  request.raised_at.frames = {{"m", 1, "", 0, ""}};
  ASSERT_TRUE(writer->append(request));
  request.outcome = "protocol";  // A second answer stands alone.
  ASSERT_TRUE(writer->append(request));
  ASSERT_TRUE(writer->append(Observation{.at_ns = 8,
                                         .role = Role::kRank,
                                         .rank = Rank{1},
                                         .name = "grad/w",
                                         .step = -3,
                                         .phase = "after_backward",
                                         .variant = "sum",
                                         .dtype = "F64",
                                         .shape = {2, 0},
                                         .digest = "00",
                                         .file = "tensors/a",
                                         .key = "w"}));
  ASSERT_TRUE(writer->append(Mark{.at_ns = 9, .name = "ran out"}));
  ASSERT_TRUE(writer->append(Note{.at_ns = 10, .text = "line\nbreak"}));
  ASSERT_TRUE(writer->close());

  const auto run = read_journal(*read_whole(path, 1U << 20));
  EXPECT_THAT(run.missing, ElementsAre());
  EXPECT_TRUE(run.journal_complete);
  ASSERT_EQ(run.starts.size(), 1U);
  EXPECT_EQ(run.starts[0].record, 1U);
  EXPECT_EQ(run.starts[0].role, Role::kReference);
  EXPECT_FALSE(run.starts[0].rank);
  ASSERT_EQ(run.ends.size(), 1U);
  EXPECT_EQ(run.ends[0].signal, 9);
  EXPECT_EQ(run.ends[0].our_signal, 15);
  EXPECT_FALSE(run.ends[0].exit_status);
  EXPECT_EQ(run.ends[0].rank, Rank{0});
  ASSERT_EQ(run.acted.size(), 1U);
  EXPECT_THAT(run.acted[0].reason, HasSubstr("why "));
  ASSERT_EQ(run.states.size(), 1U);
  EXPECT_EQ(run.states[0].threads.at(0).state, 'S');
  EXPECT_EQ(run.states[0].threads.at(0).cpu_ns, 12U);
  EXPECT_EQ(run.states[0].held_by, (RankSet{Rank{0}, Rank{2}}));
  ASSERT_EQ(run.stacks.size(), 1U);
  EXPECT_EQ(run.stacks[0].frames.at(0).function, "wait");
  EXPECT_EQ(run.stacks[0].handles, "KeyError: 2");
  EXPECT_EQ(run.stacks[0].raised_at.frames, stack.raised_at.frames);
  ASSERT_EQ(run.requests.size(), 2U);
  EXPECT_EQ(run.requests[0].record, 6U);
  EXPECT_EQ(run.requests[0].at_ns, 6U);
  EXPECT_EQ(run.requests[0].answered_ns, 7U);
  EXPECT_EQ(run.requests[0].outcome, "failed");
  EXPECT_EQ(run.requests[0].raised_at.frames.size(), 1U);
  EXPECT_EQ(run.requests[1].outcome, "protocol");
  ASSERT_EQ(run.observations.size(), 1U);
  EXPECT_EQ(run.observations[0].step, -3);
  EXPECT_THAT(run.observations[0].shape, ElementsAre(2, 0));
  EXPECT_EQ(run.observations[0].key, "w");
  EXPECT_EQ(run.marks.at(0).name, "ran out");
  EXPECT_EQ(run.notes.at(0).text, "line\nbreak");
  EXPECT_EQ(run.notes.at(0).at_ns, 10U);
}

TEST(HistoryJournal, WhoLeftRanksAndWhomTheyMetComesBack) {
  const TempDir place;
  const std::string path = place / "lockstep.jsonl";
  auto writer = JournalWriter::create(path);
  ASSERT_TRUE(writer);
  ASSERT_TRUE(writer->append(LauncherEnd{.at_ns = 5,
                                         .pid = 70,
                                         .name = "torchrun",
                                         .signal = 10,
                                         .ranks = RankSet::all(2),
                                         .pids = {71, 72}}));
  ASSERT_TRUE(writer->append(Stranger{.at_ns = 6,
                                      .rank = Rank{1},
                                      .pid = 72,
                                      .address = "127.0.0.1:29500",
                                      .other = 99,
                                      .name = "python b.py"}));
  ASSERT_TRUE(writer->close());
  const auto run = read_journal(*read_whole(path, 1U << 20));
  EXPECT_TRUE(run.journal_complete);
  EXPECT_GT(run.ended_ns, 0U);
  ASSERT_EQ(run.launcher_ends.size(), 1U);
  EXPECT_EQ(run.launcher_ends[0].name, "torchrun");
  EXPECT_EQ(run.launcher_ends[0].signal, 10);
  EXPECT_EQ(run.launcher_ends[0].ranks, RankSet::all(2));
  EXPECT_THAT(run.launcher_ends[0].pids, ElementsAre(71, 72));
  ASSERT_EQ(run.strangers.size(), 1U);
  EXPECT_EQ(run.strangers[0].rank, Rank{1});
  EXPECT_EQ(run.strangers[0].address, "127.0.0.1:29500");
  EXPECT_EQ(run.strangers[0].other, 99);
  EXPECT_EQ(run.strangers[0].name, "python b.py");
}

TEST(HistoryJournal, WhatTellsOfALineThatBeganSomethingComesBack) {
  const TempDir place;
  const std::string path = place / "lockstep.jsonl";
  auto writer = JournalWriter::create(path);
  ASSERT_TRUE(writer);
  StackSample stack{.at_ns = 5, .pid = 74, .tid = 75};
  stack.started_ns = 3;
  ASSERT_TRUE(writer->append(stack));
  Leftover left{.at_ns = 6, .kind = "process", .pid = 76};
  left.lineage = {{76, 40}, {74, 20}};
  ASSERT_TRUE(writer->append(left));
  Descriptors open{.at_ns = 7, .pid = 74, .open = 9};
  open.files = {{"/data/a", 4}};
  ASSERT_TRUE(writer->append(open));
  ASSERT_TRUE(writer->close());
  const auto run = read_journal(*read_whole(path, 1U << 20));
  EXPECT_EQ(run.stacks.at(0).started_ns, 3U);
  ASSERT_EQ(run.leftovers.at(0).lineage.size(), 2U);
  EXPECT_EQ(run.leftovers[0].lineage[1].pid, 74);
  EXPECT_EQ(run.leftovers[0].lineage[1].started_ns, 20U);
  EXPECT_EQ(run.descriptors.at(0).files, open.files);
}

TEST(HistoryJournal, TheEndOfAThreadsWaitComesBack) {
  const TempDir place;
  const std::string path = place / "lockstep.jsonl";
  ThreadState limited{75, 'S', "futex_wait", 11, 12};
  limited.for_own_threads = true;
  ThreadState for_ever = limited;
  limited.until_ns = 13;
  for_ever.for_ever = true;
  auto writer = JournalWriter::create(path);
  ASSERT_TRUE(writer);
  ASSERT_TRUE(writer->append(StateSample{.at_ns = 5, .pid = 74, .threads = {limited, for_ever}}));
  const auto run = read_journal(*read_whole(path, 1U << 20));
  ASSERT_EQ(run.states.size(), 1U);
  EXPECT_EQ(run.states[0].threads.at(0).until_ns, 13U);
  EXPECT_FALSE(run.states[0].threads.at(0).for_ever);
  EXPECT_FALSE(run.states[0].threads.at(1).until_ns);
  EXPECT_TRUE(run.states[0].threads.at(1).for_ever);
}

TEST(HistoryJournal, EveryCutIsSeen) {
  const std::string whole = three_notes();
  ASSERT_TRUE(read_journal(whole).journal_complete);
  for (std::size_t size = 0; size < whole.size(); ++size) {
    const auto run = read_journal(whole.substr(0, size));
    EXPECT_FALSE(run.journal_complete) << size;
    EXPECT_FALSE(run.missing.empty()) << size;
  }
}

TEST(HistoryJournal, EveryLostLineIsSeen) {
  for (int lost = 0; lost < 4; ++lost) {
    std::istringstream lines(three_notes());
    std::string text;
    std::string line;
    for (int i = 0; std::getline(lines, line); ++i)
      text += i == lost ? "" : line + "\n";
    const auto run = read_journal(text);
    EXPECT_FALSE(run.journal_complete) << lost;
    EXPECT_THAT(run.missing,
                ElementsAre(HasSubstr(lost == 3 ? "no closing record" : "1 records are missing")));
  }
}

TEST(HistoryJournal, GarbageIsCountedAndSkipped) {
  std::string text = three_notes();
  text.insert(text.find('\n') + 1,
              "garbage\n[]\n{\"n\":\"x\"}\n{\"n\":2,\"e\":\"unheard\",\"t\":1}\n{\"n\":2,\"e\":"
              "\"mark\",\"t\":1,\"name\":7}\n");
  const auto run = read_journal(text);
  EXPECT_EQ(run.notes.size(), 1U);  // Number 2 was used up by the garbage that claimed it.
  EXPECT_EQ(run.marks.size(), 1U);
  EXPECT_FALSE(run.journal_complete);
  EXPECT_THAT(run.missing, ElementsAre(HasSubstr("lines are not records")));
}

TEST(HistoryJournal, AnEndlessLineIsSkippedInBoundedMemory) {
  std::string text = three_notes();
  text.insert(text.find('\n') + 1, std::string(9U << 20, 'x') + "\n");
  const auto run = read_journal(text);
  EXPECT_EQ(run.notes.size(), 2U);
  EXPECT_FALSE(run.journal_complete);
}

TEST(HistoryJournal, AWriterThatCannotWriteSaysSoAndLeavesAGap) {
  const TempDir place;
  const std::string path = place / "lockstep.jsonl";
  auto writer = JournalWriter::create(path);
  ASSERT_TRUE(writer);
  ASSERT_TRUE(writer->append(Note{.at_ns = 1, .text = "first"}));
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit limit{std::filesystem::file_size(path) + 20, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
  const auto refused = writer->append(Note{.at_ns = 2, .text = "second"});
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  std::signal(SIGXFSZ, handler);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().kind, Error::Kind::kIo);
  EXPECT_THAT(refused.error().what, HasSubstr("cannot write record 2"));
  ASSERT_TRUE(writer->append(Note{.at_ns = 3, .text = "third"}));
  EXPECT_FALSE(writer->close());
  const auto run = read_journal(*read_whole(path, 1U << 20));
  EXPECT_EQ(run.notes.size(), 2U);
  EXPECT_THAT(run.missing, ElementsAre(HasSubstr("1 records are missing")));
  EXPECT_FALSE(JournalWriter::create(path));  // Never over an old one.
}

TEST(HistoryJournal, DeepNestingIsGarbageNotACrash) {
  const auto run = read_journal(std::string(200000, '[') + "\n" + std::string(100000, '{') + "\n");
  EXPECT_FALSE(run.journal_complete);
}

}  // namespace
}  // namespace lockstep::history
