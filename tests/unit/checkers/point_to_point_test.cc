// Point-to-point messages have their own numbers; only what is certain is a finding.
#include "checkers/order/point_to_point.h"

#include <gtest/gtest.h>

#include "checkers/order/collective_order.h"
#include "tests/support/typed_run.h"

namespace lockstep::testing {
namespace {

Verdict check(const lockstep::Run& run) { return checkers::CollectiveOrder().check(run); }

TEST(PointToPoint, APipelineSkewsNoSequence) {
  // Stages send and receive different numbers of messages, and all-reduce in between.
  const Verdict verdict = check(make_run({
      {send("pp", 1, 8), send("pp", 1, 8), all_reduce("pp", 4), send("pp", 1, 8)},
      {recv("pp", 0, 8), send("pp", 2, 8), recv("pp", 0, 8), all_reduce("pp", 4), recv("pp", 0, 8)},
      {recv("pp", 1, 8), all_reduce("pp", 4)},
  }));
  EXPECT_EQ(verdict.outcome, Outcome::kPass) << verdict.reason;
}

TEST(PointToPoint, AnUnmatchedSendAtExitIsSilent) {
  const Verdict verdict = check(make_run({
      {all_reduce("dp", 4), send("dp", 1, 8).async()},
      {all_reduce("dp", 4)},
  }));
  EXPECT_EQ(verdict.outcome, Outcome::kPass) << verdict.reason;
}

TEST(PointToPoint, ALongerMessageThanItsReceiveIsAFindingOfBoth) {
  const Verdict verdict = check(make_run({
      {send("dp", 1, 4), send("dp", 1, 8).at("p.py", 3)},
      {recv("dp", 0, 4), recv("dp", 0, 4).at("p.py", 7)},
  }));
  ASSERT_EQ(verdict.findings.size(), 1U);
  EXPECT_EQ(verdict.findings[0].code, Code::kP2pUnmatched);
  EXPECT_EQ(verdict.findings[0].seq, 1U);
  EXPECT_TRUE(verdict.findings[0].culprits.empty());
  EXPECT_EQ(verdict.findings[0].sites.size(), 2U);
}

TEST(PointToPoint, TypesMustAgree) {
  const Verdict verdict = check(make_run({
      {send("dp", 1, 4)},
      {recv("dp", 0, 4).with(history::DType::kInt32)},
  }));
  ASSERT_EQ(verdict.findings.size(), 1U);
  EXPECT_EQ(verdict.findings[0].code, Code::kP2pUnmatched);
}

TEST(PointToPoint, BytesAreReceivedAsWhatTheyMean) {
  const auto sent = [](std::uint64_t bytes) {
    return check(make_run({
        {send("dp", 1, bytes).with(history::DType::kUInt8)},
        {recv("dp", 0, 4)},
    }));
  };
  EXPECT_EQ(sent(16).outcome, Outcome::kPass);
  for (const std::uint64_t other : {4, 20})
    EXPECT_EQ(sent(other).findings.size(), 1U) << other;
}

TEST(PointToPoint, AMessageThatItsSenderEndedWithoutIsToldOfBoth) {
  lockstep::Run run = make_run({
      {send("dp", 1, 4), send("dp", 1, 4).at("p.py", 3)},
      {recv("dp", 0, 4), recv("dp", 0, 4), recv("dp", 0, 4).at("p.py", 7).failed()},
  });
  EXPECT_TRUE(check(run).findings.empty());  // Whoever ends well may have waited for just that.
  ends_with_status(run, Rank{1}, 1, stall_ns(run));
  const Verdict verdict = check(run);
  ASSERT_EQ(verdict.findings.size(), 1U);
  EXPECT_EQ(verdict.findings[0].code, Code::kP2pUnmatched);
  EXPECT_TRUE(verdict.findings[0].culprits.empty());
  ASSERT_EQ(verdict.findings[0].sites.size(), 2U);
  EXPECT_EQ(verdict.findings[0].sites[0].line, 7);
  EXPECT_EQ(verdict.findings[0].sites[1].line, 3);
  lockstep::Run told = run;
  Collective& last = process_of(told, Rank{1}).collectives.back();
  last.failed = false;
  last.completed_ns.reset();
  last.completion_unseen = true;
  EXPECT_TRUE(check(told).findings.empty());
  raises(told, Rank{1}, "RuntimeError: Connection closed by peer", stall_ns(told));
  EXPECT_EQ(check(told).findings.size(), 1U);
  lockstep::Run failed = run;
  ends_with_status(failed, Rank{0}, 1, stall_ns(failed));
  EXPECT_TRUE(check(failed).findings.empty());
  process_of(run, Rank{1}).collectives.back().seq = 1;  // It was sent, and something else failed.
  EXPECT_TRUE(check(run).findings.empty());
}

TEST(PointToPoint, TagsAreChannelsOfTheirOwn) {
  const Verdict verdict = check(make_run({
      {send("dp", 1, 4, 1), send("dp", 1, 8, 2), all_reduce("dp", 1)},
      {recv("dp", 0, 8, 2), recv("dp", 0, 4, 1), all_reduce("dp", 1)},
  }));
  EXPECT_EQ(verdict.outcome, Outcome::kPass) << verdict.reason;
}

TEST(PointToPoint, ReceivesFromAnyoneMatchNothingByNumber) {
  const Verdict verdict = check(make_run({
      {recv_any("dp", 4), recv("dp", 1, 4), all_reduce("dp", 1)},
      {send("dp", 0, 8), send("dp", 0, 4), all_reduce("dp", 1)},
  }));
  EXPECT_EQ(verdict.outcome, Outcome::kPass) << verdict.reason;
}

}  // namespace
}  // namespace lockstep::testing
