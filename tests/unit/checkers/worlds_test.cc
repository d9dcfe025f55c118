// Goal: a failure that the launcher made good is a note, any other stays what it is. Method: worlds
// made of typed runs, each case with its twin.
#include "checkers/worlds.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "tests/support/typed_run.h"

namespace lockstep {
namespace {

using namespace lockstep::testing;
using checkers::Judgement;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

constexpr std::int32_t kLauncher = 7;
const std::vector<Row> kRows{{all_reduce("dp", 8)}, {all_reduce("dp", 8)}};

World world_of(Run run, std::int32_t command_status, std::int32_t attempt = 0) {
  run.starts.push_back({.role = Role::kOther, .pid = kLauncher});
  ProcessEnd end{.at_ns = last_event(run) + 1'000 * kMs, .role = Role::kOther};
  end.pid = kLauncher;
  end.exit_status = command_status;
  run.ends.push_back(end);
  for (ProcessStart& start : run.starts) {
    start.parent = kLauncher;
    start.parent_name = "launcher";
  }
  World world{.ranks = RankSet::all(2), .until_ns = end.at_ns, .started_by = kLauncher};
  world.run = std::move(run);
  world.attempt = attempt;
  return world;
}

Run healthy() { return make_run(kRows); }

Run with_statuses(std::int32_t status) {
  Run run = healthy();
  for (const Rank rank : RankSet::all(2))
    ends_with_status(run, rank, status, last_event(run) + kMs);
  return run;
}

Run with_exception() {
  Run run = healthy();
  raises(run, Rank{1}, "ValueError: no label", last_event(run) + kMs);
  return run;
}

Judgement judged(std::vector<World> worlds) {
  for (std::size_t i = 0; i < worlds.size(); ++i) {  // One after the other.
    worlds[i].from_ns = i * 1'000'000 * kMs;
    worlds[i].until_ns = worlds[i].from_ns + 1'000 * kMs;
  }
  return checkers::together(worlds, checkers::judge_worlds(worlds, checkers::all_checkers()));
}

TEST(WorldsTest, StatusesThatTheLauncherReadAreANote) {
  const Judgement note = judged({world_of(with_statuses(77), 0)});
  ASSERT_THAT(note.findings, SizeIs(1));
  EXPECT_EQ(note.findings[0].severity, Severity::kNote);
  EXPECT_EQ(note.findings[0].headline, "2 ranks ended with status 77; the job ended well");
  EXPECT_THAT(note.findings[0].culprits, IsEmpty());
  EXPECT_EQ(note.outcome, Outcome::kPass);

  const Judgement failed = judged({world_of(with_statuses(77), 1)});
  ASSERT_THAT(failed.findings, SizeIs(1));
  EXPECT_EQ(failed.findings[0].severity, Severity::kError);
}

TEST(WorldsTest, AStatusOfOneAloneOrAnExceptionStaysAFailure) {
  auto alone = healthy();
  ends_with_status(alone, Rank{1}, 77, last_event(alone) + kMs);
  for (const auto& run : {alone, with_exception()}) {
    const Judgement failed = judged({world_of(run, 0)});
    ASSERT_THAT(failed.findings, SizeIs(1));
    EXPECT_EQ(failed.findings[0].severity, Severity::kError);
    EXPECT_THAT(failed.findings[0].also, Contains(Code::kHiddenFailure));
  }
}

TEST(WorldsTest, OneThatItsLauncherEndedTheOthersForIsHandled) {
  auto run = healthy();
  ends_with_status(run, Rank{1}, 1, last_event(run) + kMs);
  ends_with_signal(run, Rank{0}, 15, last_event(run) + 2 * kMs);
  const auto by = [&](const char* sender) {
    for (ProcessEnd& end : run.ends) {
      if (end.rank == Rank{0}) {
        end.sender = sender_of(sender);
        end.asked_ns = end.at_ns - kMs / 2;
      }
    }
    return judged({world_of(run, 0)}).findings.at(0).severity;
  };
  EXPECT_EQ(by("pid 7 (launcher)"), Severity::kNote);
  EXPECT_EQ(by("pid 8 (somebody else)"), Severity::kError);
}

TEST(WorldsTest, AnAttemptThatWasFollowedIsANoteWithItsLine) {
  const Judgement note = judged({world_of(with_exception(), 0, 0), world_of(healthy(), 0, 1)});
  ASSERT_THAT(note.findings, SizeIs(1));
  const Finding& finding = note.findings[0];
  EXPECT_EQ(finding.severity, Severity::kNote);
  EXPECT_THAT(finding.headline, HasSubstr("phase 1 of 2: rank 1 raised: ValueError: no label"));
  EXPECT_THAT(texts_of(finding.evidence),
              Contains(HasSubstr("launcher (pid 7) started all ranks again")));
  EXPECT_THAT(finding.also, Not(Contains(Code::kHiddenFailure)));
  EXPECT_EQ(finding.world, "phase 1 of 2");
  // Another job of the same command is no other attempt.
  EXPECT_EQ(judged({world_of(with_exception(), 0), world_of(healthy(), 0)}).findings[0].severity,
            Severity::kError);
}

TEST(WorldsTest, ACommandThatWasRunAgainAndEndedWellIsHandled) {
  const auto severity = [](const char* second, std::int32_t started_by, std::int32_t status) {
    auto run = healthy();
    if (status != 0)
      ends_with_status(run, Rank{1}, status, last_event(run) + kMs);
    std::vector<World> worlds{world_of(with_exception(), 0), world_of(run, 0)};
    worlds[1].started_by = started_by;
    for (World& world : worlds) {
      for (ProcessStart& start : world.run.starts)
        start.command = &world == worlds.data() ? "python train.py" : second;
    }
    return judged(worlds).findings.at(0).severity;
  };
  EXPECT_EQ(severity("python train.py", 8, 0), Severity::kNote);
  EXPECT_EQ(severity("python evaluate.py", 8, 0), Severity::kError);
  EXPECT_EQ(severity("python train.py", kLauncher, 0), Severity::kError);  // Phases of one program.
  EXPECT_EQ(severity("python train.py", 8, 1), Severity::kError);
}

TEST(WorldsTest, WrongSumsAreNeverHandled) {
  std::vector<Row> rows = kRows;
  rows[1][0].record.reduce_op = history::ReduceOp::kMax;
  auto run = make_run(rows);
  for (const Rank rank : RankSet::all(2))
    ends_with_status(run, rank, 77, last_event(run) + kMs);
  const Judgement wrong = judged({world_of(run, 0)});
  EXPECT_EQ(wrong.outcome, Outcome::kFail);
}

TEST(WorldsTest, ChecksAreAsBadAsTheWorstOfThem) {
  std::vector<Row> rows = kRows;
  rows[1][0].record.reduce_op = history::ReduceOp::kMax;
  const Judgement all = judged({world_of(make_run(rows), 0), world_of(healthy(), 0)});
  EXPECT_EQ(all.outcome, Outcome::kFail);
  for (const Verdict& verdict : all.verdicts) {
    if (verdict.name == "collective-order") {
      EXPECT_EQ(verdict.outcome, Outcome::kFail);
      EXPECT_EQ(verdict.examined.at("collectives"), 2U);
    }
  }
}

TEST(WorldsTest, TasksOfOneLauncherThatNeverMetAreAWarning) {
  const auto tasks = [](std::optional<std::int32_t> second) {
    std::vector<World> worlds{world_of(healthy(), 0), world_of(healthy(), 0)};
    worlds[0].task = 0;
    worlds[1].task = second;
    worlds[0].tasks = worlds[1].tasks = 2;
    return checkers::together(worlds, checkers::judge_worlds(worlds, checkers::all_checkers()));
  };
  const Judgement apart = tasks(1);
  ASSERT_THAT(apart.findings, SizeIs(1));
  EXPECT_EQ(apart.findings[0].code, Code::kNeverJoined);
  EXPECT_EQ(apart.findings[0].severity, Severity::kWarning);
  EXPECT_THAT(tasks(0).findings, IsEmpty()) << "one task did both";
  EXPECT_THAT(tasks(std::nullopt).findings, IsEmpty()) << "no task at all";
}

}  // namespace
}  // namespace lockstep
