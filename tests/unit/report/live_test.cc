// Live progress: what reaches a terminal and what reaches a file.
#include "harness/report/live.h"

#include <gtest/gtest.h>

#include <utility>

#include "tests/unit/report/samples.h"

namespace lockstep {
namespace {

class Live : public ::testing::Test {
 protected:
  LiveProgress progress(bool rewrite, HumanOptions options = {}) {
    return {[this](std::string_view text) { written_ += text; }, std::move(options), rewrite,
            report_.cases.size()};
  }
  std::string take() { return std::exchange(written_, {}); }

  Report report_ = testing::failing_suite();
  std::string written_{};
};

TEST_F(Live, OffATerminalOneBlockPerCaseAndNoCursorMovement) {
  LiveProgress live = progress(false);
  std::string expected;
  for (std::size_t i = 0; i < report_.cases.size(); ++i) {
    live.running(report_.cases[i].id, static_cast<double>(i));
    live.finished(report_.cases[i], static_cast<double>(i) + 0.5);
    expected += human_case(report_.cases[i], i + 1, report_.cases.size(), {});
  }
  live.pause();
  EXPECT_EQ(written_, expected);
  EXPECT_EQ(written_.find('\r'), std::string::npos);
  EXPECT_EQ(written_.find('\x1b'), std::string::npos);
}

TEST_F(Live, OffATerminalSpeaksAfterAMinuteOfSilence) {
  LiveProgress live = progress(false);
  live.running("a/slow/case", 59.9);
  EXPECT_EQ(take(), "");
  live.running("a/slow/case", 60);
  EXPECT_EQ(take(), "   RUNNING  [ 60.00 s] (1/8) a/slow/case\n");
  live.running("a/slow/case", 119);
  EXPECT_EQ(take(), "");
  live.running("a/slow/case", 120);
  EXPECT_EQ(take(), "   RUNNING  [ 120.0 s] (1/8) a/slow/case\n");
}

TEST_F(Live, OnATerminalTheLastLineIsRewritten) {
  LiveProgress live = progress(true);
  live.running("a/case", 0.1);
  EXPECT_EQ(take(), "\r\x1b[K   RUNNING  [  0.10 s] (1/8) a/case");
  live.running("a/case", 0.2);
  EXPECT_EQ(take(), "\r\x1b[K   RUNNING  [  0.20 s] (1/8) a/case");
  live.finished(report_.cases[1], 0.3);  // a failure
  EXPECT_EQ(take(), "\r\x1b[K" + human_case(report_.cases[1], 1, 8, {}));
  live.running("b/case", 0.4);
  EXPECT_EQ(take(), "\r\x1b[K   RUNNING  [  0.40 s] (2/8) b/case, 1 failed");
  live.pause();
  EXPECT_EQ(take(), "\r\x1b[K");
  live.pause();
  EXPECT_EQ(take(), "");
}

TEST_F(Live, TheLineNeverFillsTheTerminal) {
  LiveProgress live = progress(true, {.width = 40});
  live.running("a/case/with/an/id/that/is/far/too/long/for/this", 0.1);
  EXPECT_EQ(take(), "\r\x1b[K   RUNNING  [  0.10 s] (1/8) a/case/wi\xe2\x80\xa6");
}

}  // namespace
}  // namespace lockstep
