// Goal: what must be equal is, to the bit; what may differ is left alone; rank 0 is the authority
// where declared.
#include "checkers/values/replica_equality.h"

#include <gtest/gtest.h>

#include "tests/support/typed_run.h"

namespace lockstep::testing {
namespace {

Verdict check(const lockstep::Run& run) { return checkers::ReplicaEquality().check(run); }

/// Values of one tensor by rank.
using Values = std::vector<std::vector<double>>;

lockstep::Run three_ranks(const std::string& buffers) {
  lockstep::Run run = make_run({{}, {}, {}});
  if (!buffers.empty())
    run.plan.contract["buffers"] = buffers;
  return run;
}

void see(lockstep::Run& run, const std::string& name, std::int64_t step, const std::string& phase,
         const Values& values) {
  for (std::size_t rank = 0; rank < values.size(); ++rank)
    observe(run, Rank{static_cast<std::int32_t>(rank)}, name, step, phase, values[rank]);
}

/// Just before, rank 0 had this value and the others had values of their own.
void see_before(lockstep::Run& run, const std::string& name, std::int64_t step,
                const std::string& phase, const std::vector<double>& of_rank_0) {
  const Values values{of_rank_0, {77, 1}, {78, 1}};
  if (phase == "initial")
    see(run, name, step, "before", values);
  else if (phase == "forward_entry/1")
    see(run, name, step, "after_forward/0", values);
  else if (phase == "forward_entry/0")
    see(run, name, step - 1, name.rfind("buffer/", 0) == 0 ? "after_backward" : "before", values);
}

const Values kEqual{{1, 2}, {1, 2}, {1, 2}};
const Values kOneOff{{1, 2}, {1, 3}, {1, 2}};
const Values kAllOff{{1, 2}, {1, 3}, {1, 4}};
const Values kRank0Off{{9, 9}, {1, 2}, {1, 2}};

struct Expectation {
  const char* what{};
  const char* contract{};
  const char* name{};
  const char* phase{};
  Values values{};
  Code code{};  ///< Empty: nothing is wrong.
  RankSet culprits{};
};

class EveryRule : public ::testing::TestWithParam<Expectation> {};

TEST_P(EveryRule, SaysWhatItMust) {
  const Expectation& e = GetParam();
  SCOPED_TRACE(e.what);
  lockstep::Run run = three_ranks(e.contract);
  see(run, "param/other", 0, "initial", kEqual);
  see_before(run, e.name, 2, e.phase, e.values.front());
  see(run, e.name, 2, e.phase, e.values);
  const Verdict verdict = check(run);
  if (e.code == Code::kNone) {
    EXPECT_EQ(verdict.outcome, Outcome::kPass) << verdict.reason;
    return;
  }
  ASSERT_EQ(verdict.findings.size(), 1U);
  EXPECT_EQ(verdict.findings[0].code, e.code);
  EXPECT_EQ(verdict.findings[0].culprits, e.culprits);
  EXPECT_EQ(verdict.findings[0].step, 2);
  ASSERT_EQ(verdict.findings[0].names.size(), 1U);
}

INSTANTIATE_TEST_SUITE_P(
    Rules, EveryRule,
    ::testing::Values(
        Expectation{"equal parameters", "", "param/w", "after_step", kEqual, Code::kNone, {}},
        Expectation{"a parameter on one rank",
                    "",
                    "param/w",
                    "after_step",
                    kOneOff,
                    Code::kParameterDiffers,
                    {Rank{1}}},
        Expectation{"a parameter on all ranks",
                    "",
                    "param/w",
                    "after_backward",
                    kAllOff,
                    Code::kParameterDiffers,
                    {}},
        Expectation{"a parameter on rank 0",
                    "",
                    "param/w",
                    "after_step",
                    kRank0Off,
                    Code::kParameterDiffers,
                    {Rank{0}}},
        Expectation{"initial values of one rank",
                    "",
                    "param/w",
                    "initial",
                    kOneOff,
                    Code::kInitialValue,
                    {Rank{1}}},
        Expectation{"initial values of all ranks",
                    "",
                    "param/w",
                    "initial",
                    kAllOff,
                    Code::kInitialValue,
                    {}},
        Expectation{"initial values of rank 0, the authority",
                    "",
                    "param/w",
                    "initial",
                    kRank0Off,
                    Code::kInitialValue,
                    {}},
        Expectation{"values before wrapping", "", "param/w", "before", kAllOff, Code::kNone, {}},
        Expectation{"initial buffers",
                    "rank0",
                    "buffer/m",
                    "initial",
                    kOneOff,
                    Code::kInitialValue,
                    {Rank{1}}},
        Expectation{"buffers at entry",
                    "rank0",
                    "buffer/m",
                    "forward_entry/0",
                    kOneOff,
                    Code::kBufferDiffers,
                    {Rank{1}}},
        Expectation{"buffers at entry on all",
                    "rank0",
                    "buffer/m",
                    "forward_entry/0",
                    kAllOff,
                    Code::kBufferDiffers,
                    {}},
        Expectation{"buffers at entry of the second forward",
                    "rank0",
                    "buffer/m",
                    "forward_entry/1",
                    kOneOff,
                    Code::kBufferDiffers,
                    {Rank{1}}},
        Expectation{"equal buffers at entry",
                    "rank0",
                    "buffer/m",
                    "forward_entry/0",
                    kEqual,
                    Code::kNone,
                    {}},
        Expectation{"buffers after forward",
                    "rank0",
                    "buffer/m",
                    "after_forward/0",
                    kAllOff,
                    Code::kNone,
                    {}},
        Expectation{"the hole after no_sync",
                    "rank0",
                    "buffer/m",
                    "forward_entry_unsynced/0",
                    kAllOff,
                    Code::kNone,
                    {}},
        Expectation{
            "local buffers", "local", "buffer/m", "forward_entry/0", kAllOff, Code::kNone, {}},
        Expectation{
            "undeclared buffers", "", "buffer/m", "forward_entry/0", kAllOff, Code::kNone, {}},
        Expectation{"synchronised buffers",
                    "synchronised",
                    "buffer/m",
                    "forward_entry/0",
                    kRank0Off,
                    Code::kBufferDiffers,
                    {Rank{0}}},
        Expectation{"optimizer state",
                    "",
                    "optimizer/w.exp_avg",
                    "after_step",
                    kOneOff,
                    Code::kOptimizerStateDiffers,
                    {Rank{1}}}));

TEST(ReplicaEquality, SkippedIfTheContractLetsEverythingDiffer) {
  lockstep::Run run = three_ranks("local");
  see(run, "buffer/m", 0, "forward_entry/0", kAllOff);
  EXPECT_EQ(check(run).outcome, Outcome::kSkipped);
}

TEST(ReplicaEquality, CannotDecideWithoutAnyValueOrWithoutOneRank) {
  lockstep::Run run = three_ranks("rank0");
  EXPECT_EQ(check(run).outcome, Outcome::kSkipped) << "a program's values are not observed";
  run.plan.scenario = "buffer-broadcast";
  EXPECT_EQ(check(run).outcome, Outcome::kUndecided);
  see(run, "param/w", 0, "initial", {{1}, {1}});
  EXPECT_EQ(check(run).outcome, Outcome::kUndecided);
}

TEST(ReplicaEquality, ABroadcastFromAnotherRankMakesAllEqualAndWrong) {
  lockstep::Run run = three_ranks("rank0");
  see(run, "buffer/m", 0, "after_backward", {{1}, {2}, {3}});
  see(run, "buffer/m", 1, "forward_entry/0", {{2}, {2}, {2}});
  const Verdict verdict = check(run);
  ASSERT_EQ(verdict.findings.size(), 1U);
  EXPECT_EQ(verdict.findings[0].code, Code::kBufferDiffers);
  EXPECT_TRUE(verdict.findings[0].culprits.empty());
  EXPECT_EQ(verdict.findings[0].affected.size(), 3U);
  // The twin: rank 0's own value.
  run = three_ranks("rank0");
  see(run, "buffer/m", 0, "after_backward", {{1}, {2}, {3}});
  see(run, "buffer/m", 1, "forward_entry/0", {{1}, {1}, {1}});
  EXPECT_EQ(check(run).outcome, Outcome::kPass);
}

TEST(ReplicaEquality, TheSecondForwardBeginsWithWhatRank0sFirstLeft) {
  lockstep::Run run = three_ranks("rank0");
  see(run, "buffer/m", 0, "forward_entry/0", {{1}, {1}, {1}});
  see(run, "buffer/m", 0, "after_forward/0", {{5}, {6}, {7}});
  see(run, "buffer/m", 0, "forward_entry/1", {{6}, {6}, {6}});
  EXPECT_EQ(check(run).findings.at(0).code, Code::kBufferDiffers);
}

TEST(ReplicaEquality, MicroBatchesAreComparedOccasionByOccasion) {
  lockstep::Run run = three_ranks("rank0");
  see(run, "buffer/m", 0, "after_backward", {{9}, {9}, {9}});
  see(run, "buffer/m", 1, "forward_entry/0", {{1}, {1}, {1}});
  see(run, "buffer/m", 1, "forward_entry/0", {{2}, {2}, {2}});
  EXPECT_EQ(check(run).outcome, Outcome::kPass) << check(run).reason;
  see(run, "buffer/m", 1, "forward_entry/0", {{3}, {3}, {4}});
  EXPECT_EQ(check(run).findings.at(0).code, Code::kBufferDiffers);
}

TEST(ReplicaEquality, OnlyTheFirstStepIsAFindingAndAllItsTensorsAreNamed) {
  lockstep::Run run = three_ranks("");
  see(run, "param/a", 1, "after_step", kOneOff);
  see(run, "param/b", 1, "after_step", kOneOff);
  see(run, "param/a", 2, "after_step", kAllOff);
  const Verdict verdict = check(run);
  ASSERT_EQ(verdict.findings.size(), 1U);
  EXPECT_EQ(verdict.findings[0].names, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(verdict.findings[0].step, 1);
  EXPECT_EQ(verdict.findings[0].consequences, 1U);
  EXPECT_EQ(verdict.findings[0].culprits, RankSet{Rank{1}});
}

// Ranks 0 and 2 are equal by chance: nobody was sent rank 0's value, so rank 1 did what all did.
TEST(ReplicaEquality, HoldingRank0sValueByChanceIsNoMajority) {
  const auto finding_with = [](const Values& before) {
    lockstep::Run run = three_ranks("rank0");
    see(run, "buffer/m", 0, "after_backward", before);
    see(run, "buffer/m", 1, "forward_entry/0", {{0}, {1}, {0}});
    return check(run).findings.at(0);
  };
  EXPECT_TRUE(finding_with({{0}, {1}, {0}}).culprits.empty());
  EXPECT_EQ(finding_with({{0}, {1}, {0}}).affected.size(), 3U);
  EXPECT_EQ(finding_with({{0}, {1}, {5}}).culprits, RankSet{Rank{1}});  // Rank 2 did receive it.
}

TEST(ReplicaEquality, TellsHowFarTheyAreApartWhereTheValuesCanBeRead) {
  lockstep::Run run = three_ranks("");
  see(run, "param/w", 1, "after_step", kOneOff);
  EXPECT_EQ(check(run).findings.at(0).evidence.at(0).text,
            "w: rank 1 differs from the other ranks, by up to 1 on rank 1");
  for (const Rank lost : {Rank{0}, Rank{1}}) {
    lockstep::Run less = run;
    less.tensor = [&](const Observation& seen) -> Result<Tensor> {
      if (seen.rank == lost)
        return Error{Error::Kind::kMalformedHistory, "the file is cut off", ""};
      return run.tensor(seen);
    };
    EXPECT_EQ(check(less).findings.at(0).evidence.at(0).text,
              "w: rank 1 differs from the other ranks");
  }
}

TEST(ReplicaEquality, OnTwoRanksNobodyIsNamed) {
  lockstep::Run run = make_run({{}, {}});
  see(run, "param/w", 1, "after_step", {{1}, {2}});
  EXPECT_TRUE(check(run).findings.at(0).culprits.empty());
}

// --- What ranks keep to themselves

TEST(IgnoredTensor, StaysEachRanksOwn) {
  lockstep::Run run = three_ranks("rank0");
  run.plan.options["ignored"] = "w";
  see(run, "param/w", 0, "before", kAllOff);
  see(run, "param/w", 0, "initial", kAllOff);
  see(run, "param/w", 0, "after_backward", {{5, 2}, {6, 2}, {7, 2}});
  EXPECT_TRUE(check(run).findings.empty());
}

TEST(IgnoredTensor, IsNotToBeBroadcast) {
  for (const char* name : {"param/w", "buffer/w"}) {
    lockstep::Run run = three_ranks("rank0");
    run.plan.options["ignored"] = "w";
    see(run, name, 0, "before", kAllOff);
    see(run, name, 0, "initial", kEqual);
    const Verdict verdict = check(run);
    ASSERT_EQ(verdict.findings.size(), 1U) << name;
    EXPECT_EQ(verdict.findings.front().code, Code::kInitialValue);
    EXPECT_NE(verdict.findings.front().headline.find("is to be kept"), std::string::npos);
  }
}

TEST(IgnoredTensor, CannotBeJudgedWithoutWhatItWas) {
  lockstep::Run run = three_ranks("rank0");
  run.plan.options["ignored"] = "w";
  see(run, "param/w", 0, "initial", kAllOff);
  EXPECT_TRUE(check(run).findings.empty());
}

// --- The state after a join

/// Ranks 0 and 2 run two batches, rank 1 one. Afterwards all hold `joined`.
lockstep::Run joined(const std::vector<double>& value, bool last_step_seen = true) {
  lockstep::Run run = three_ranks("rank0");
  run.plan.batches = {2, 1, 2};
  see(run, "param/w", 0, "after_backward", {{1, 1}, {1, 1}, {1, 1}});
  if (last_step_seen) {
    observe(run, Rank{0}, "param/w", 1, "after_backward", {2, 2});
    observe(run, Rank{2}, "param/w", 1, "after_backward", {2, 2});
  }
  see(run, "param/w", 2, "joined", {value, value, value});
  return run;
}

TEST(JoinedState, IsThatOfARankThatRanLongest) {
  EXPECT_TRUE(check(joined({2, 2})).findings.empty());
  const Verdict verdict = check(joined({1, 1}));
  ASSERT_EQ(verdict.findings.size(), 1U);
  EXPECT_EQ(verdict.findings.front().code, Code::kParameterDiffers);
  EXPECT_EQ(verdict.findings.front().affected, RankSet::all(3));
  EXPECT_NE(verdict.findings.front().headline.find("ran longest"), std::string::npos);
}

TEST(JoinedState, IsNotJudgedWithoutTheLastStep) {
  EXPECT_TRUE(check(joined({1, 1}, false)).findings.empty());
}

}  // namespace
}  // namespace lockstep::testing
