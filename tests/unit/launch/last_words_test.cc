// Goal: the exception a process died of, as Python and std::terminate print it; nothing where there
// is none.
#include "harness/launch/last_words.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>

namespace lockstep::launch {
namespace {

TEST(LastWords, PythonTraceback) {
  const auto words = last_words(
      "warning: slow\n"
      "Traceback (most recent call last):\n"
      "  File \"/data/train.py\", line 12, in <module>\n"
      "    main()\n"
      "    ^^^^^^\n"
      "  File \"/data/train.py\", line 7, in main\n"
      "    raise ValueError(\"bad batch\")\n"
      "ValueError: bad batch\n");
  ASSERT_TRUE(words);
  EXPECT_EQ(words->text, "ValueError: bad batch");
  ASSERT_EQ(words->raised_at.frames.size(), 2U);
  EXPECT_EQ(words->raised_at.frames[0].line, 7);
  EXPECT_EQ(words->raised_at.frames[0].function, "main");
  EXPECT_EQ(words->raised_at.frames[1].file, "/data/train.py");
}

TEST(LastWords, OfOneThatRaisedNothingTheLastLine) {
  EXPECT_EQ(last_line("loading\nno such configuration: small.yaml\n\n"),
            "no such configuration: small.yaml");
  EXPECT_EQ(last_line("10%\r20%\r"), "20%");
  EXPECT_EQ(last_line("[rank1]: out of data"), "out of data");
  EXPECT_EQ(last_line(" \n"), "");
  EXPECT_EQ(last_line(std::string(500, 'x')).size(), 200U);
}

TEST(LastWords, AWarningIsNobodysLastWord) {
  const std::string source = "  import pynvml  # type: ignore[import]\n";
  const std::string warning = "/site/torch/cuda/__init__.py:65: FutureWarning: it is old.\n";
  EXPECT_EQ(last_line(warning + source), "");
  EXPECT_EQ(last_line(warning), "");
  EXPECT_EQ(last_line("no data: part1.pt\n" + warning + source), "no data: part1.pt");
  EXPECT_EQ(last_line("no data\n" + warning + source + warning + source), "no data");
  EXPECT_EQ(last_line("a.py:3: UserWarning: one\nand two\nand three\n  f(x)\n"), "");
  EXPECT_EQ(last_line(warning + source + "no data: part1.pt\n"), "no data: part1.pt");
  EXPECT_EQ(last_line(warning + source + "  no data: part1.pt\n"), "  no data: part1.pt");
  EXPECT_EQ(last_line("train.py: Warning: no data\n"), "train.py: Warning: no data");
  EXPECT_EQ(last_line("  part1.pt\n"), "  part1.pt");
}

TEST(LastWords, OfAMessageThatBeginsEmptyItsFirstLineWithText) {
  const std::string raised = "Traceback (most recent call last):\n  File \"a.py\", line 1, in f\n";
  EXPECT_EQ(last_words(raised + "RuntimeError: \n \n        Failed to run stage backward:\n")->text,
            "RuntimeError: Failed to run stage backward:");
  EXPECT_EQ(last_words(raised + "RuntimeError: \n")->text, "RuntimeError:");
  EXPECT_EQ(last_words(raised + "ValueError\nnext\n")->text, "ValueError");
}

// Two exceptions of a.py, one after the other.
std::string both(const std::string& first, const std::string& link, const std::string& last) {
  return "Traceback (most recent call last):\n"
         "  File \"/data/a.py\", line 1, in step\n"
         "  File \"/usr/lib/python3.11/json/decoder.py\", line 355, in decode\n" +
         first + "\n\n" + link +
         "\n\n"
         "Traceback (most recent call last):\n"
         "  File \"/data/a.py\", line 3, in main\n" +
         last + "\n";
}
const std::string kDuring = "During handling of the above exception, another exception occurred:";
const std::string kFrom = "The above exception was the direct cause of the following exception:";

TEST(LastWords, OfSeveralTheLastAndWhatWasBeingHandled) {
  const auto words = last_words(both("KeyError: 'x'", kDuring, "RuntimeError: gave up"));
  ASSERT_TRUE(words);
  EXPECT_EQ(words->text, "RuntimeError: gave up (while it handled KeyError: 'x', a.py:1)");
  EXPECT_EQ(words->raised_at.frames.front().line, 3);
  const auto two =
      last_words(both("KeyError: 'x'", kDuring, "OSError: b") + "\n" + kDuring + "\n\n" +
                 "Traceback (most recent call last):\n"
                 "  File \"b.py\", line 9, in <module>\n"
                 "RuntimeError: c\n");
  EXPECT_EQ(two->text,
            "RuntimeError: c (while it handled KeyError: 'x', a.py:1; then OSError: b, a.py:3)");
}

TEST(LastWords, OfOneThatWasRaisedFromAnotherTheFirst) {
  const auto words =
      last_words(both("ValueError: bad batch", kFrom, "RuntimeError: step 3 failed"));
  ASSERT_TRUE(words);
  EXPECT_EQ(words->text, "ValueError: bad batch (then RuntimeError: step 3 failed)");
  EXPECT_EQ(words->raised_at.frames.front().line, 355);
  EXPECT_EQ(words->raised_at.frames.back().line, 1);
  // As pools pass it on.
  EXPECT_EQ(last_words(both("ValueError: bad batch", kFrom, "ValueError: bad batch"))->text,
            "ValueError: bad batch");
  // The first one is out of sight.
  EXPECT_EQ(last_words("KeyError: 1\n\n" + kFrom +
                       "\n\nTraceback (most recent call last):\n"
                       "  File \"b.py\", line 9, in <module>\nRuntimeError: c\n")
                ->text,
            "RuntimeError: c");
}

TEST(LastWords, WhatWasCaughtHasItsCallersFromTheTracebackThatFollowed) {
  const std::string link = "\n\n" + kFrom + "\n\n";
  const std::string first =
      "Traceback (most recent call last):\n"
      "  File \"/py/loader.py\", line 12, in fetch\n"
      "  File \"/py/queues.py\", line 3, in get\n"
      "RuntimeError: worker 7 is killed";
  const auto then = [](const std::string& function, const std::string& caller) {
    return "Traceback (most recent call last):\n"
           "  File \"/data/" +
           caller +
           "\", line 40, in epoch\n"
           "  File \"/py/loader.py\", line 15, in " +
           function + "\nRuntimeError: gone";
  };
  const auto words = last_words(first + link + then("fetch", "train.py") + "\n");
  ASSERT_TRUE(words);
  EXPECT_EQ(words->text, "RuntimeError: worker 7 is killed (then RuntimeError: gone)");
  ASSERT_EQ(words->raised_at.frames.size(), 3U);
  EXPECT_EQ(words->raised_at.frames[0].line, 3);
  EXPECT_EQ(words->raised_at.frames[1].line, 12) << "where it was called, not where it was caught";
  EXPECT_EQ(words->raised_at.frames[2].file, "/data/train.py");
  // Twice, and raised by another function than the one that caught it.
  const auto chain = last_words(first + link + then("fetch", "train.py") + link +
                                "Traceback (most recent call last):\n"
                                "  File \"/data/main.py\", line 9, in <module>\n"
                                "  File \"/data/train.py\", line 44, in epoch\n"
                                "ValueError: no batch\n");
  ASSERT_EQ(chain->raised_at.frames.size(), 4U);
  EXPECT_EQ(chain->raised_at.frames[3].file, "/data/main.py");
  EXPECT_EQ(last_words(first + link + then("later", "train.py") + "\n")->raised_at.frames.size(),
            2U);
}

TEST(LastWords, OfWhatALoadersWorkerRaisedItsOwn) {
  const std::string passed_on =
      "Traceback (most recent call last):\n"
      "  File \"/data/train.py\", line 12, in <module>\n"
      "  File \"/lib/torch/_utils.py\", line 804, in reraise\n"
      "ValueError: Caught ValueError in DataLoader worker process 0.\n";
  const auto words =
      last_words(passed_on +
                 "Original Traceback (most recent call last):\n"
                 "  File \"/lib/torch/utils/data/_utils/worker.py\", line 3, in loop\n"
                 "  File \"/data/train.py\", line 7, in __getitem__\n"
                 "ValueError: sample 41 is corrupt\n\n");
  ASSERT_TRUE(words);
  EXPECT_EQ(words->text, "ValueError: sample 41 is corrupt (in DataLoader worker process 0)");
  ASSERT_EQ(words->raised_at.frames.size(), 4U);
  EXPECT_EQ(words->raised_at.frames[0].function, "__getitem__");
  EXPECT_EQ(words->raised_at.frames[2].function, "reraise");
  EXPECT_EQ(words->raised_at.frames[3].line, 12);
  const auto half = last_words(passed_on + "Original Traceback (most recent call last):\n");
  ASSERT_TRUE(half);
  EXPECT_EQ(half->text, "ValueError: Caught ValueError in DataLoader worker process 0.");
}

TEST(LastWords, WithTheRankInFront) {
  const auto words = last_words(
      "[rank1]: Traceback (most recent call last):\n"
      "[rank1]:   File \"t.py\", line 5, in step\n"
      "[rank1]: RuntimeError: oops\n");
  ASSERT_TRUE(words);
  EXPECT_EQ(words->text, "RuntimeError: oops");
  EXPECT_EQ(words->raised_at.frames.front().function, "step");
}

TEST(LastWords, Terminate) {
  const auto words = last_words(
      "terminate called after throwing an instance of 'c10::Error'\n  what():  shapes differ\n");
  ASSERT_TRUE(words);
  EXPECT_EQ(words->text, "shapes differ");
  EXPECT_EQ(last_words("done\nterminate called without an active exception\n")->text,
            "terminate called without an active exception");
}

TEST(LastWords, TheExceptionThatWasBeforeStdTerminate) {
  const std::string raised =
      "Traceback (most recent call last):\n"
      "  File \"t.py\", line 5, in step\n"
      "ValueError: bad batch\n";
  const std::string terminated = "terminate called without an active exception\n";
  EXPECT_EQ(last_words(raised + terminated)->text, "ValueError: bad batch");
  EXPECT_EQ(last_words(raised + "caught, and on we go\n" + terminated)->text + "\n", terminated);
}

TEST(LastWords, OfASpawnedProcessItsParentTells) {
  const std::string said =
      "Traceback (most recent call last):\n"
      "  File \"t.py\", line 30, in <module>\n"
      "torch.multiprocessing.spawn.ProcessRaisedException: \n"
      "\n"
      "-- Process 1 terminated with the following error:\n"
      "Traceback (most recent call last):\n"
      "  File \"t.py\", line 12, in train\n"
      "ValueError: bad batch\n";
  EXPECT_EQ(spawned_index(said), 1);
  EXPECT_EQ(last_words(said)->text, "ValueError: bad batch");
  EXPECT_EQ(spawned_index("\n-- Process 1 terminated with exit code 1"), std::nullopt);
  EXPECT_EQ(spawned_index(""), std::nullopt);
}

TEST(LastWords, OfATracebackWhoseBeginningIsGone) {
  std::string tail = "ne 5, in walk\n    return walk(n)\n           ^^^^^^^\n";
  for (int i = 0; i < 100; ++i)
    tail += "  File \"train.py\", line 5, in walk\n    return walk(n)\n           ^^^^^^^\n";
  const auto words = last_words(tail + "RecursionError: maximum recursion depth exceeded\n");
  ASSERT_TRUE(words);
  EXPECT_EQ(words->text, "RecursionError: maximum recursion depth exceeded");
  EXPECT_EQ(words->raised_at.frames.front().line, 5);
  EXPECT_FALSE(last_words("one\ntwo\nthree\nfour\nfive\n" + tail + "RecursionError: x\n"))
      << "something was said in between";
}

TEST(LastWords, NothingOrHalfOfIt) {
  EXPECT_FALSE(last_words(""));
  EXPECT_FALSE(last_words("epoch 1\nepoch 2"));
  EXPECT_FALSE(last_words("Traceback (most recent call last):\n  File \"a.py\", line"));
  EXPECT_FALSE(last_words("[rank"));
}

TEST(SentSignal, CountsWhereItIsTheOneThatEnded) {
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / fmt::format("lockstep-sent-{}", ::getpid());
  std::filesystem::create_directory(folder);
  std::ofstream(folder / "-4711.signalled") << "15 5000000000 pid 9 (torch run)\n";
  std::ofstream(folder / "4711.signalled") << "2 4000000000 pid 8 (a)\n9 6000000000 pid 7 (b)\n";
  EXPECT_TRUE(sent_signals(folder.string(), 4712).empty());
  JobProcess process;
  process.sent = sent_signals(folder.string(), 4711);
  std::filesystem::remove_all(folder);
  ASSERT_EQ(process.sent.size(), 3U);
  EXPECT_EQ(process.sent.front().at_ns, 4'000'000'000U);
  EXPECT_EQ(process.ended_by(), nullptr) << "it lives";
  const auto sender = [&](const os::ExitReport& end, std::uint64_t ended_ns) {
    process.ended = end;
    process.ended_ns = ended_ns;
    return process.ended_by() == nullptr ? "" : process.ended_by()->sender;
  };
  const std::uint64_t late = 5'500'000'000, at_once = 5'001'000'000;
  EXPECT_EQ(sender({.signal = SIGTERM}, at_once), "pid 9 (torch run)");
  EXPECT_EQ(sender({.signal = SIGSEGV}, late), "") << "it had taken the other ones";
  EXPECT_EQ(sender({.signal = SIGABRT}, late), "pid 9 (torch run)") << "it may be on its way out";
  EXPECT_EQ(sender({.signal = SIGABRT}, at_once), "");
  EXPECT_EQ(sender({.exit_status = 1}, late), "pid 9 (torch run)") << "its handler ended it";
  EXPECT_EQ(sender({.exit_status = 143}, at_once), "pid 9 (torch run)");
  EXPECT_EQ(sender({.exit_status = 1}, at_once), "") << "it may have ended before";
  EXPECT_EQ(sender({.exit_status = 0}, late), "pid 9 (torch run)");
  EXPECT_EQ(sender({}, late), "") << "how it ended is not known";
}

}  // namespace
}  // namespace lockstep::launch
