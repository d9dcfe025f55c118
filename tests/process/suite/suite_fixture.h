// Runs cases of the suite with real rank hosts, in a directory of its own.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "harness/launch/supervisor.h"
#include "scenarios/case_runner.h"

namespace lockstep {

class SuiteProcess : public ::testing::Test {
 protected:
  void SetUp() override {
    auto supervisor = launch::Supervisor::unguarded();
    ASSERT_TRUE(supervisor) << supervisor.error().what;
    supervisor_ = std::move(*supervisor);
    const char* temporary = std::getenv("TMPDIR");
    path_ =
        fmt::format("{}/lockstep-suite-{}", temporary == nullptr ? "/tmp" : temporary, getpid());
    history::RunOptions where;
    where.run_dir = path_;
    auto directory = history::RunDirectory::create(where);
    ASSERT_TRUE(directory) << directory.error().what;
    directory_ = std::make_unique<history::RunDirectory>(std::move(*directory));
    options_.rank_host = LOCKSTEP_RANK_HOST;
    options_.reference_host = LOCKSTEP_REFERENCE_HOST;
  }
  void TearDown() override {
    if (HasFailure()) {
      fmt::print("its runs are in {}; judge them again with: lockstep check {}/cases/...\n", path_,
                 path_);
      return;
    }
    directory_.reset();
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }

  static Case find_case(const std::vector<Case>& cases, const std::string& id) {
    const auto at = std::find_if(cases.begin(), cases.end(),
                                 [&](const Case& cell) { return cell.id.rfind(id, 0) == 0; });
    EXPECT_NE(at, cases.end()) << id;
    return *at;
  }

  std::unique_ptr<launch::Supervisor> supervisor_;
  std::unique_ptr<history::RunDirectory> directory_;
  std::string path_;
  SuiteOptions options_;
};

}  // namespace lockstep
