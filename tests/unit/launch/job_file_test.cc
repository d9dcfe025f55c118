// Goal: whether any lockstep of a run lives can be asked by anybody, and what may live on is on
// record.
#include "harness/launch/job_file.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>

namespace lockstep::launch {
namespace {

class JobFileTest : public ::testing::Test {
 protected:
  JobFileTest() {
    std::string name = std::filesystem::temp_directory_path() / "lockstep-job-XXXXXX";
    EXPECT_NE(::mkdtemp(name.data()), nullptr);
    directory_ = name;
  }
  ~JobFileTest() override { std::filesystem::remove_all(directory_); }
  std::string directory_;
};

TEST_F(JobFileTest, HeldUntilTheLastOneIsGone) {
  Result<UniqueFd> supervisor = create_job_file(directory_, "1234");
  ASSERT_TRUE(supervisor);
  EXPECT_EQ(read_job_file(directory_)->id, "1234");
  EXPECT_TRUE(read_job_file(directory_)->held);
  UniqueFd guard = hold_job_file(directory_);
  ASSERT_TRUE(guard);
  supervisor->reset();
  EXPECT_TRUE(read_job_file(directory_)->held);
  guard.reset();
  EXPECT_FALSE(read_job_file(directory_)->held);
}

TEST_F(JobFileTest, SurvivorsAreOnRecord) {
  const Result<UniqueFd> file = create_job_file(directory_, "1234");
  ASSERT_TRUE(file);
  ASSERT_TRUE(note_survivor(*file, {17, 4711}));
  ASSERT_TRUE(note_survivor(*file, {18, 4712}));
  const std::vector<os::ProcessId> expected{{17, 4711}, {18, 4712}};
  EXPECT_EQ(read_job_file(directory_)->survivors, expected);
}

TEST_F(JobFileTest, AnythingElseIsNoJobFile) {
  EXPECT_FALSE(read_job_file(directory_));
  for (const char* text : {"", "job", "run 1234"}) {
    std::ofstream(directory_ + "/job") << text;
    EXPECT_FALSE(read_job_file(directory_)) << text;
  }
}

}  // namespace
}  // namespace lockstep::launch
