// Goal: a failed call that whoever waited in it got over is a note and nobody's debt; one that
// returned, or that nobody worked on after, is what it always was.
#include "harness/model/recovery.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>

#include "checkers/judge.h"
#include "tests/support/typed_run.h"

namespace lockstep::testing {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

checkers::Judgement judged(const lockstep::Run& run) {
  return checkers::judge(run, checkers::all_checkers());
}

Row steps(const std::string& group, std::size_t count) {
  return times(count, {all_reduce(group, 4).at("t.py", 16)});
}

/// Rank 1 leaves the group "0" after three steps; the others' fourth fails.
std::vector<Row> one_left(std::size_t world, const Row& after) {
  const Row waited = steps("0", 3) + Row{all_reduce("0", 4).at("t.py", 16).failed()} + after;
  std::vector<Row> rows(world, waited);
  rows[1] = steps("0", 3) + after;
  return rows;
}

TEST(Recovery, ACallThatFailedAndThatAllGotOverIsANote) {
  for (const std::size_t world : {2U, 3U, 4U}) {
    const auto judgement = judged(make_run(one_left(world, steps("1", 6))));
    ASSERT_EQ(judgement.findings.size(), 1U);
    const Finding& note = judgement.findings.front();
    EXPECT_EQ(note.severity, Severity::kNote) << text_of(note.code) << note.headline;
    EXPECT_EQ(judgement.outcome, Outcome::kPass);
    EXPECT_TRUE(note.culprits.empty());
    EXPECT_THAT(note.headline, HasSubstr("rank 1 left group 0 without all_reduce 0#3"));
    EXPECT_THAT(texts_of(note.evidence),
                Contains("rank 1 left after all_reduce #2 at t.py:16, and worked on "
                         "in group 1"));
    EXPECT_THAT(texts_of(note.evidence),
                Contains(HasSubstr("rank 0 saw all_reduce 0#3 fail after")));
  }
}

TEST(Recovery, WhoDidNotWorkOnDidNotGetOverIt) {
  for (const Row& after : {Row{}, Row{all_reduce("1", 4).failed()}}) {
    const auto judgement = judged(make_run(one_left(3, after)));
    ASSERT_EQ(judgement.findings.size(), 1U);
    EXPECT_EQ(judgement.findings.front().severity, Severity::kError);
  }
}

TEST(Recovery, ACallThatReturnedIsNotGotOver) {
  std::vector<Row> rows = one_left(3, steps("1", 6));
  rows[2][3] = all_reduce("0", 4).at("t.py", 16).pending().unseen();
  EXPECT_NE(judged(make_run(rows)).outcome, Outcome::kPass);
  // A sum of other types, before all start again.
  const Row wrong = steps("0", 3) + Row{all_reduce("0", 4).with(history::DType::kInt32)};
  const auto judgement = judged(make_run({steps("0", 4) + steps("1", 3), wrong + steps("1", 3)}));
  ASSERT_EQ(judgement.findings.size(), 1U);
  EXPECT_EQ(judgement.findings.front().code, Code::kDifferentDtype);
  EXPECT_EQ(judgement.findings.front().severity, Severity::kError);
}

/// Who only hands something in has nothing to wait for.
TEST(Recovery, WhoHadNothingToWaitForMayHaveReturned) {
  const auto left_in = [](history::Op op, std::int32_t root) {
    const Call made = call(op, "0", 4, 4).rooted(root);
    std::vector<Row> rows = one_left(3, steps("1", 6));
    rows[0][3] = Call(made).failed();
    rows[2][3] = made;
    return judged(make_run(rows));
  };
  for (const auto& [op, root] :
       {std::pair{history::Op::kReduce, 0}, std::pair{history::Op::kBroadcast, 2}}) {
    const auto judgement = left_in(op, root);
    ASSERT_EQ(judgement.findings.size(), 1U);
    EXPECT_EQ(judgement.findings.front().severity, Severity::kNote);
    EXPECT_THAT(texts_of(judgement.findings.front().evidence), Contains(HasSubstr("rank 2 saw")));
  }
  EXPECT_EQ(left_in(history::Op::kReduce, 2).outcome, Outcome::kFail);
  EXPECT_EQ(left_in(history::Op::kAllGather, -1).outcome, Outcome::kFail);
}

TEST(Recovery, ACallThatRaisedOnAllIsNoMismatchAnyMore) {
  const Row after = steps("1", 3);
  const auto judgement = judged(make_run({steps("0", 3) + Row{barrier("0").failed()} + after,
                                          steps("0", 3) + Row{all_reduce("0", 4).failed()} + after,
                                          steps("0", 3) + Row{barrier("0").failed()} + after}));
  ASSERT_EQ(judgement.findings.size(), 1U);
  EXPECT_EQ(judgement.findings.front().code, Code::kDifferentOp);
  EXPECT_EQ(judgement.findings.front().severity, Severity::kNote);
  EXPECT_EQ(judgement.outcome, Outcome::kPass);
}

TEST(Recovery, WhoFailsLaterIsNotHiddenByIt) {
  lockstep::Run run = make_run(one_left(3, steps("1", 6)));
  raises(run, Rank{2}, "ValueError: no label", last_event(run) + 10 * kMs);
  const auto judgement = judged(run);
  ASSERT_EQ(judgement.findings.size(), 2U);
  EXPECT_EQ(judgement.findings.front().code, Code::kRankDied);
  EXPECT_EQ(judgement.findings.front().culprits, RankSet{Rank{2}});
  EXPECT_EQ(judgement.findings.back().severity, Severity::kNote);
}

TEST(Recovery, WhoLeftForGoodIsNotNeededByAJobThatEndedWell) {
  std::vector<Row> rows = one_left(3, {});
  rows[0] = rows[2] = rows[0] + steps("1", 6);
  lockstep::Run run = make_run(rows);
  set_members(run, "1", {Rank{0}, Rank{2}});
  EXPECT_EQ(judged(run).outcome, Outcome::kPass);
  ends_with_status(run, Rank{2}, 3, last_event(run) + 10 * kMs);
  EXPECT_EQ(judged(run).outcome, Outcome::kFail);
}

TEST(Recovery, CannotDecideWhereAMemberWasNotSeen) {
  lockstep::Run run = make_run(one_left(3, steps("1", 6)));
  for (Process& process : run.processes) {
    if (process.rank == Rank{2})
      process.groups.front().seen_from_creation = false;
  }
  EXPECT_TRUE(recoveries(run, group_views(run)).empty());
}

}  // namespace
}  // namespace lockstep::testing
