// One case over the fake rank host, for tests of HostJob and WarmParent in this process.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>

#include "harness/launch/host_job.h"
#include "harness/protocol/message.h"

namespace lockstep::testing {

class HostCase : public ::testing::Test {
 protected:
  using Clock = std::chrono::steady_clock;
  using Json = protocol::Json;
  using Kind = launch::Event::Kind;
  using Run = lockstep::Run;  // not ::testing::Test::Run

  void SetUp() override {
    std::string name = std::filesystem::temp_directory_path() / "lockstep-host-XXXXXX";
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    directory_ = name;
    supervisor_ = *launch::Supervisor::unguarded();
    warm_ = std::make_unique<launch::WarmParent>(
        *supervisor_,
        launch::WarmOptions{.command = {LAUNCH_FAKE_HOST}, .log_file = directory_ + "/warm.log"});
    options_.logs_directory = directory_ + "/logs";
  }

  void TearDown() override {
    warm_.reset();
    for (const os::ProcessStat& process : os::members_of(supervisor_->family())) {
      ADD_FAILURE() << "left behind: " << process.name << " " << process.id.pid << ", state "
                    << process.state << ", child of " << process.parent << ", we are "
                    << ::getpid();
    }
    std::filesystem::remove_all(directory_);
  }

  static Clock::time_point soon() { return Clock::now() + std::chrono::seconds(20); }

  std::vector<launch::HostSpec> ranks(int world_size) {
    std::vector<launch::HostSpec> specs;
    for (int rank = 0; rank < world_size; ++rank) {
      specs.push_back({.rank = Rank{rank},
                       .warm = warm_.get(),
                       .environment = {{"RANK", std::to_string(rank)},
                                       {"WORLD_SIZE", std::to_string(world_size)},
                                       {"FAKE_HISTORY", directory_}}});
    }
    return specs;
  }

  std::unique_ptr<launch::HostJob> start(int world_size) {
    Result<std::unique_ptr<launch::HostJob>> job =
        launch::HostJob::start(*supervisor_, options_, ranks(world_size));
    EXPECT_TRUE(job.has_value()) << job.error().what;
    return job ? std::move(*job) : nullptr;
  }

  static void send(launch::HostJob& job, std::size_t host, const char* message,
                   Json fields = Json::object()) {
    fields["id"] = 1;
    fields["message"] = message;
    EXPECT_TRUE(job.send(host, protocol::encode(fields)).has_value());
  }

  static Json ask(launch::HostJob& job, std::size_t host, const char* message,
                  Json fields = Json::object()) {
    send(job, host, message, std::move(fields));
    const launch::Event event = job.wait(soon());
    EXPECT_EQ(event.kind, Kind::kLine) << event.text;
    EXPECT_EQ(event.host, host);
    return Json::parse(event.text, nullptr, false);
  }

  static std::string contents(const std::string& path) {
    std::ifstream file(path);
    std::stringstream text;
    text << file.rdbuf();
    return text.str();
  }

  std::string directory_;
  std::unique_ptr<launch::Supervisor> supervisor_;
  std::unique_ptr<launch::WarmParent> warm_;
  launch::HostJobOptions options_;
};

}  // namespace lockstep::testing
