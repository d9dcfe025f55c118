// Which frame of a stack is shown as the place of a call.

#include "harness/model/call_site.h"

#include <gtest/gtest.h>

namespace lockstep::checkers {
namespace {

Frame python(const std::string& file, std::int32_t line, const std::string& function) {
  return {.module = file, .offset = 1, .file = file, .line = line, .function = function};
}

const Frame kTorch =
    python("/opt/venv/lib/python3.12/site-packages/torch/distributed/c10d.py", 4181, "all_reduce");
const Frame kWith = python("/usr/lib/python3.12/contextlib.py", 144, "__exit__");
const Frame kTrainer =
    python("/opt/venv/lib/python3.12/site-packages/trainer/loop.py", 30, "Loop.advance");
const Frame kUser = python("/srv/project/train.py", 167, "train_step");
const Frame kImport = python("<frozen runpy>", 88, "_run_code");

std::string shown(const std::vector<Frame>& frames) {
  const Frame* const frame = user_frame(frames);
  return frame == nullptr ? "none" : frame->function;
}

TEST(Sites, TheUsersFrameIsShownAndNotThatOfALibrary) {
  EXPECT_EQ(shown({kTorch, kWith, kUser, kImport}), "train_step");
  EXPECT_EQ(shown({kTorch, kTrainer, kUser}), "train_step");
  EXPECT_EQ(shown({kTorch, kTrainer, kImport}), "Loop.advance");
  EXPECT_EQ(shown({kTorch, kWith, kImport}), "none");
  EXPECT_EQ(shown({}), "none");
}

TEST(Sites, OneLineOfTextStandsBackForThePackageThatItCalls) {
  const Frame command = python("<string>", 1, "<module>");
  EXPECT_EQ(shown({kTorch, kTrainer, command}), "Loop.advance");
  EXPECT_EQ(shown({kTorch, command}), "<module>");
  EXPECT_EQ(shown({kTorch, kTrainer, python("<stdin>", 7, "<module>")}), "<module>");
  EXPECT_EQ(shown({kTorch, python("<string>", 1, "__init__"), kUser}), "train_step");
}

TEST(Sites, NamesLikeALibrarysAreTheUsersAllTheSame) {
  EXPECT_EQ(shown({kTorch, python("/srv/project/libtorch_benchmark.py", 3, "main")}), "main");
  EXPECT_EQ(shown({kTorch, python("/srv/project/train.py", 3, "_start_epoch")}), "_start_epoch");
  EXPECT_FALSE(is_user_frame({.module = "/opt/libtorch/lib/libtorch_cpu.so", .line = 1}));
  EXPECT_FALSE(is_user_frame({.module = "/srv/project/train", .line = 1, .function = "_start"}));
}

}  // namespace
}  // namespace lockstep::checkers
