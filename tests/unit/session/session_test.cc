// Goal: a session writes its plan and what was done, says what was left, and reports from what it
// wrote.
#include "harness/session/session.h"

#include <gmock/gmock.h>

#include "tests/unit/history/history_support.h"
#include "tests/unit/session/fake_job.h"

namespace lockstep::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// The job of a session that is not its owner.
class SharedJob final : public session::LiveJob {
 public:
  explicit SharedJob(FakeJob& job) : job_(job) {}
  launch::RunEvent wait(session::TimePoint deadline) override { return job_.wait(deadline); }
  void sample(bool before_the_end) override { job_.sample(before_the_end); }
  void look_again() override { job_.look_again(); }
  [[nodiscard]] session::TimePoint last_move() const override { return job_.last_move(); }
  [[nodiscard]] bool share_a_rank() const override { return job_.share_a_rank(); }
  [[nodiscard]] bool lost_a_child() const override { return job_.lost_a_child(); }
  [[nodiscard]] bool others_wait() const override { return job_.others_wait(); }
  [[nodiscard]] RankSet living() const override { return job_.living(); }
  [[nodiscard]] const Run& history() const override { return job_.history(); }
  void read_on() override { job_.read_on(); }
  [[nodiscard]] std::int32_t world_size() const override { return job_.world_size(); }
  launch::EndReport end(const std::string& reason) override { return job_.end(reason); }
  launch::EndReport clear() override { return job_.clear(); }

 private:
  FakeJob& job_;
};

class Sessions : public ::testing::Test {
 protected:
  Sessions()
      : directory_(history::RunDirectory::create({.run_dir = place_ / "run", .shm = ""}).value()),
        job_(two_ranks(), 0),
        notices_(job_.clock(), [this](std::string_view text) { said_.emplace_back(text); }) {}

  static lockstep::Run two_ranks() {
    lockstep::Run run;
    run.plan.world_size = 2;
    return run;
  }
  Result<Report> run(double stall_limit_s = 0) {
    Plan plan;
    plan.id = directory_.id();
    plan.command = {"train"};
    session::Session session(plan, directory_, {.stall_limit_s = stall_limit_s}, job_.clock(),
                             notices_);
    return session.run(
        [&](const session::Records& records) -> Result<std::unique_ptr<session::LiveJob>> {
          (void)records.journal.append(ProcessStart{.at_ns = 1, .role = Role::kOther, .pid = 900});
          (void)records.journal.append(
              ProcessEnd{.at_ns = 9, .role = Role::kOther, .pid = 900, .exit_status = 0});
          return std::make_unique<SharedJob>(job_);
        });
  }

  history::TempDir place_{};
  history::RunDirectory directory_;
  FakeJob job_;
  std::vector<std::string> said_{};
  session::Notices notices_;
};

TEST_F(Sessions, ReportsFromWhatItWrote) {
  job_.is_over_at(seconds(1));
  const Result<Report> report = run();
  ASSERT_TRUE(report) << report.error().what;
  EXPECT_EQ(report->command, std::vector<std::string>{"train"});
  EXPECT_EQ(report->world_size, 2) << "the size that was seen";
  EXPECT_EQ(report->program_exit, 0);
  EXPECT_EQ(report->outcome, Outcome::kSkipped);
  EXPECT_EQ(job_.ended_because, "") << "it was over";
}

TEST_F(Sessions, AJobThatIsGivenUpIsEndedAndThatIsWrittenDown) {
  job_.is_over_at(seconds(100));
  const Result<Report> report = run(2);
  ASSERT_TRUE(report) << report.error().what;
  EXPECT_EQ(job_.ended_because, "--stall-limit 2 s");
  const Result<lockstep::Run> saved = history::open_run(directory_.path());
  ASSERT_TRUE(saved);
  ASSERT_EQ(saved->acted.size(), 1U);
  EXPECT_EQ(saved->acted.front().reason, "--stall-limit 2 s");
}

TEST_F(Sessions, TellsWhatWasLeft) {
  job_.is_over_at(seconds(1));
  os::ProcessStat kept;
  kept.id.pid = 7;
  kept.name = "tensorboard";
  job_.left.spared.push_back(kept);
  for (const bool gone : {true, false}) {
    os::EndedProcess left;
    left.id.pid = 8;
    left.name = "worker";
    left.gone = gone;
    job_.left.leftovers.push_back(left);
  }
  ASSERT_TRUE(run());
  EXPECT_THAT(
      said_,
      ElementsAre(HasSubstr("KEPT  [  1.00 s]  process 7 (tensorboard) was left as it is"),
                  HasSubstr("LEFT  [  1.00 s]  process 8 (worker) was left behind and was ended"),
                  HasSubstr("process 8 (worker) was left behind and could not be ended")));
}

TEST_F(Sessions, AJobThatCannotBeStartedIsAnError) {
  session::Session session({}, directory_, {}, job_.clock(), notices_);
  const Result<Report> report =
      session.run([](const session::Records&) -> Result<std::unique_ptr<session::LiveJob>> {
        return Error{Error::Kind::kEnvironment, "no such command", ""};
      });
  ASSERT_FALSE(report);
  EXPECT_EQ(report.error().what, "no such command");
}

}  // namespace
}  // namespace lockstep::testing
