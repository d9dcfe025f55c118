// Goal: of the data that loops received, what all ranks read alike, what no rank received, and an
// order that comes again are told; what only looks so is not.
#include "checkers/watch/loaded_data.h"

#include <gtest/gtest.h>

#include <memory>

#include "harness/history/watched_values.h"
#include "tests/support/typed_run.h"

namespace lockstep::testing {
namespace {

constexpr std::uint32_t kWhole =
    history::kEnded | history::kIndexed | history::kTrained | history::kShares | history::kShuffles;

/// A pass over a loader of 24 samples a rank.
WatchedEpoch pass(std::uint32_t number, std::uint64_t order) {
  return {.received = 24,
          .batches = 6,
          .order = order,
          .share = 24,
          .digests = {order + 1, order + 2, order + 3, order + 4},
          .replicas = 2,
          .epoch = number,
          .flags = kWhole,
          .sampler = "DistributedSampler",
          .place = "/job/train.py:12"};
}

/// Two ranks, each with its passes.
lockstep::Run read(const std::vector<WatchedEpoch>& zero, const std::vector<WatchedEpoch>& one) {
  lockstep::Run run = make_run({{all_reduce("dp", 8)}, {all_reduce("dp", 8)}});
  run.plan.options["watch"] = "1 %";
  for (const auto& [rank, passes] : {std::pair{0, zero}, std::pair{1, one}}) {
    auto values = std::make_shared<WatchedValues>();
    values->on = true;
    values->epochs = passes;
    process_of(run, Rank{rank}).watched = std::move(values);
  }
  return run;
}

/// What each rank handed to four reductions in backward.
void hand_in(lockstep::Run& run, std::uint64_t zero, std::uint64_t one) {
  for (const auto& [rank, digest] : {std::pair{0, zero}, std::pair{1, one}}) {
    Process& process = process_of(run, Rank{rank});
    process.sites.resize(2);
    process.sites[1].frames = {
        {.file = "train.py", .line = 20, .function = "_engine_run_backward"}};
    for (std::uint64_t at = 1; at <= 4; ++at) {
      process.watched->handed_in.push_back({.position = at,
                                            .numel = 100,
                                            .value = {.digest = digest + at, .sums = {}, .norm = 1},
                                            .site = 1,
                                            .sampled = true});
    }
  }
}

Verdict checked(const lockstep::Run& run) { return checkers::LoadedData().check(run); }

TEST(LoadedData, AllReadAndComputedTheSame) {
  lockstep::Run run = read({pass(1, 7)}, {pass(1, 7)});
  hand_in(run, 5, 5);
  const Verdict verdict = checked(run);
  ASSERT_EQ(verdict.findings.size(), 1U);
  EXPECT_EQ(verdict.outcome, Outcome::kFail);
  EXPECT_EQ(verdict.findings[0].code, Code::kShardsOverlap);
  EXPECT_TRUE(verdict.findings[0].culprits.empty());
  ASSERT_EQ(verdict.findings[0].sites.size(), 1U);
  EXPECT_EQ(verdict.findings[0].sites[0].line, 12);
}

TEST(LoadedData, WhatOnlyLooksAlikeIsNot) {
  lockstep::Run sliced = read({pass(1, 7)}, {pass(1, 7)});
  hand_in(sliced, 5, 6);
  lockstep::Run other_files = read({pass(1, 7)}, {pass(1, 7)});
  process_of(other_files, Rank{1}).watched->epochs[0].digests[1] = 99;
  hand_in(other_files, 5, 5);
  lockstep::Run evaluated = read({pass(1, 7)}, {pass(1, 7)});
  for (std::int32_t rank = 0; rank < 2; ++rank)
    process_of(evaluated, Rank{rank}).watched->epochs[0].flags &= ~history::kTrained;
  hand_in(evaluated, 5, 5);
  const lockstep::Run nothing_handed_in = read({pass(1, 7)}, {pass(1, 7)});
  for (const lockstep::Run& run : {sliced, other_files, evaluated, nothing_handed_in})
    EXPECT_EQ(checked(run).outcome, Outcome::kPass);
}

TEST(LoadedData, AnOrderThatComesAgainIsANote) {
  const Verdict verdict = checked(read({pass(1, 7), pass(2, 7)}, {pass(1, 9), pass(2, 9)}));
  ASSERT_EQ(verdict.findings.size(), 1U);
  EXPECT_EQ(verdict.outcome, Outcome::kPass);
  EXPECT_EQ(verdict.findings[0].code, Code::kNotReshuffled);
  EXPECT_EQ(verdict.findings[0].severity, Severity::kNote);
  // Two passes in each epoch.
  EXPECT_TRUE(checked(read({pass(1, 7), pass(2, 7), pass(3, 8), pass(4, 8)},
                           {pass(1, 9), pass(2, 9), pass(3, 5), pass(4, 5)}))
                  .findings.empty());
}

TEST(LoadedData, AnOrderByChoiceOrOfAFewSamplesIsNone) {
  const auto with = [](std::uint32_t flags, std::uint64_t received) {
    WatchedEpoch first = pass(1, 7), second = pass(2, 7);
    first.flags = second.flags = flags;
    first.received = second.received = received;
    return read({first, second}, {first, second});
  };
  EXPECT_TRUE(checked(with(kWhole & ~history::kShuffles, 24)).findings.empty());
  EXPECT_TRUE(checked(with(kWhole & ~history::kEnded, 24)).findings.empty());
  EXPECT_TRUE(checked(with(kWhole & ~history::kTrained, 24)).findings.empty());
  EXPECT_TRUE(checked(with(kWhole, 24)).findings.size() == 1);
  EXPECT_TRUE(checked(with(kWhole | history::kDropsLast, 4)).findings.empty());
}

TEST(LoadedData, SamplesThatReachNoRankInTwoPasses) {
  const auto cut = [](std::uint32_t number, std::uint64_t received) {
    WatchedEpoch one = pass(number, number);
    one.received = received;
    return one;
  };
  const Verdict verdict = checked(read({cut(1, 12), cut(2, 12)}, {cut(1, 12), cut(2, 12)}));
  ASSERT_EQ(verdict.findings.size(), 1U);
  EXPECT_EQ(verdict.findings[0].code, Code::kSamplesMissed);
  EXPECT_EQ(verdict.findings[0].headline,
            "of 48 samples that DistributedSampler deals out 24 reach no rank");
  EXPECT_EQ(verdict.findings[0].severity, Severity::kWarning);
  // A curriculum: later on there is all.
  const Verdict first =
      checked(read({cut(1, 12), cut(2, 12), cut(3, 24)}, {cut(1, 12), cut(2, 12), cut(3, 24)}));
  ASSERT_EQ(first.findings.size(), 1U);
  EXPECT_EQ(first.findings[0].severity, Severity::kNote);
  // Something else leaves them out: those that are too long, say.
  const Verdict some = checked(read({cut(1, 18), cut(2, 18)}, {cut(1, 18), cut(2, 18)}));
  ASSERT_EQ(some.findings.size(), 1U);
  EXPECT_EQ(some.findings[0].severity, Severity::kNote);
  // What fills no batch is dropped by a sampler of batches, of each group of like samples.
  const auto grouped = [](std::uint32_t number) {
    WatchedEpoch one = pass(number, number);
    one.received = 12;
    one.batches = 3;
    return one;
  };
  const Verdict dropped = checked(read({grouped(1), grouped(2)}, {grouped(1), grouped(2)}));
  ASSERT_EQ(dropped.findings.size(), 1U);
  EXPECT_EQ(dropped.findings[0].severity, Severity::kNote);
  // It filled up by one; a restart went on in the middle of the first pass.
  EXPECT_TRUE(checked(read({cut(1, 24), cut(2, 24)}, {cut(1, 23), cut(2, 23)})).findings.empty());
  EXPECT_TRUE(checked(read({cut(1, 12), cut(2, 24)}, {cut(1, 12), cut(2, 24)})).findings.empty());
}

TEST(LoadedData, SharesThatAreNotAlikeInTwoPasses) {
  const auto cut = [](std::uint32_t number, std::uint64_t received) {
    WatchedEpoch one = pass(number, number);
    one.received = received;
    return one;
  };
  const Verdict verdict = checked(read({cut(1, 24), cut(2, 24)}, {cut(1, 20), cut(2, 20)}));
  ASSERT_EQ(verdict.findings.size(), 1U);
  EXPECT_EQ(verdict.findings[0].code, Code::kUnequalLengths);
  EXPECT_EQ(verdict.findings[0].severity, Severity::kNote);
  // In one pass alone; where the sampler itself makes shares of different sizes.
  EXPECT_TRUE(checked(read({cut(1, 24), cut(2, 24)}, {cut(1, 20), cut(2, 24)})).findings.empty());
  WatchedEpoch first = cut(1, 20), second = cut(2, 20);
  first.share = second.share = 20;
  EXPECT_TRUE(checked(read({cut(1, 24), cut(2, 24)}, {first, second})).findings.empty());
}

TEST(LoadedData, APassThatGaveNothing) {
  WatchedEpoch empty = pass(1, 0);
  empty.received = empty.batches = empty.share = 0;
  EXPECT_TRUE(checked(read({empty}, {empty})).findings.empty());  // Nobody dropped anything.
  empty.flags |= history::kDropsLast;
  const Verdict verdict = checked(read({empty}, {empty}));
  ASSERT_EQ(verdict.findings.size(), 1U);
  EXPECT_EQ(verdict.findings[0].code, Code::kEmptyEpoch);
  EXPECT_TRUE(checked(read({empty}, {pass(1, 0)})).findings.empty());
}

TEST(LoadedData, WhereNothingWasSeenNothingIsSaid) {
  EXPECT_EQ(checked(read({}, {pass(1, 7)})).outcome, Outcome::kSkipped);
  EXPECT_EQ(checked(make_run({{}, {}})).outcome, Outcome::kSkipped);
}

}  // namespace
}  // namespace lockstep::testing
