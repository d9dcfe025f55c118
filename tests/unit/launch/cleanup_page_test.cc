#include "harness/launch/cleanup_page.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace lockstep::launch {
namespace {

namespace fs = std::filesystem;
using Kind = CleanupPage::Kind;

class CleanupPageTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = fs::temp_directory_path() / "lockstep-cleanup-XXXXXX";
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    directory_ = name;
    page_ = *CleanupPage::create();
  }
  void TearDown() override { fs::remove_all(directory_); }

  fs::path make(const char* name) {
    fs::create_directories(directory_ / name);
    std::ofstream(directory_ / name / "file") << "content";
    return directory_ / name;
  }

  fs::path directory_;
  std::shared_ptr<CleanupPage> page_;
};

TEST_F(CleanupPageTest, RemovesWithTheHandle) {
  const fs::path path = make("scratch");
  {
    const auto handle = page_->add(Kind::kRemove, path);
    EXPECT_TRUE(fs::exists(path));
  }
  EXPECT_FALSE(fs::exists(path));
}

TEST_F(CleanupPageTest, RescueIsOnlyForTheDead) {
  const fs::path live = make("live");
  { const auto handle = page_->add(Kind::kRescue, live, directory_ / "kept"); }
  EXPECT_TRUE(fs::exists(live)) << "the owner lived to move it, and decides";
  EXPECT_TRUE(page_->settle_all().empty());
  EXPECT_TRUE(fs::exists(live));
}

TEST_F(CleanupPageTest, SettlesForAProcessThatDied) {
  const fs::path live = make("live");
  const fs::path scratch = make("scratch");
  const pid_t child = ::fork();
  if (child == 0) {
    const auto rescue = page_->add(Kind::kRescue, live, directory_ / "run" / "history");
    const auto removal = page_->add(Kind::kRemove, scratch);
    const auto run = page_->add(Kind::kRun, directory_ / "run");
    ::raise(SIGKILL);
  }
  ::waitpid(child, nullptr, 0);
  EXPECT_EQ(page_->run_directory(), directory_ / "run");
  EXPECT_TRUE(page_->settle_all().empty());
  EXPECT_FALSE(fs::exists(live));
  EXPECT_FALSE(fs::exists(scratch));
  std::ifstream kept(directory_ / "run" / "history" / "file");
  std::string text;
  kept >> text;
  EXPECT_EQ(text, "content");
  EXPECT_TRUE(fs::exists(directory_ / "run"));
}

TEST_F(CleanupPageTest, SaysWhatCouldNotBeKept) {
  const fs::path live = make("live");
  std::ofstream(directory_ / "file") << "in the way";
  const auto rescue = page_->add(Kind::kRescue, live, directory_ / "file" / "below");
  const std::vector<std::string> problems = page_->settle_all();
  ASSERT_EQ(problems.size(), 1U);
  EXPECT_NE(problems[0].find("cannot keep"), std::string::npos) << problems[0];
}

TEST_F(CleanupPageTest, BoundsAreErrors) {
  EXPECT_FALSE(page_->add(Kind::kRun, std::string(5000, 'x')).has_value());
  std::vector<CleanupPage::Handle> handles;
  for (int i = 0; i < 64; ++i)
    handles.push_back(*page_->add(Kind::kRun, "x"));
  EXPECT_FALSE(page_->add(Kind::kRun, "x").has_value());
  handles.pop_back();
  EXPECT_TRUE(page_->add(Kind::kRun, "x").has_value());
}

}  // namespace
}  // namespace lockstep::launch
