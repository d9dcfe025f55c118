// Goal: of modules as they are wrapped, of buffers that are sent, of gradients that a program
// reduces itself and of tensors of collectives, what is certainly wrong is told; what only looks so
// is not, or is a note.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "checkers/watch/collective_tensors.h"
#include "checkers/watch/gradient_sums.h"
#include "checkers/watch/sent_buffers.h"
#include "checkers/watch/wrapped_modules.h"
#include "harness/history/watched_values.h"
#include "tests/support/typed_run.h"

namespace lockstep::testing {
namespace {

using history::WatchEntry;

/// Each rank is watched, and has seen nothing.
lockstep::Run watched(std::size_t ranks) {
  lockstep::Run run = make_run(std::vector<std::vector<Call>>(ranks, {all_reduce("dp", 8)}));
  run.plan.options["watch"] = "1 %";
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    Process& process = process_of(run, Rank{static_cast<std::int32_t>(rank)});
    process.watched = std::make_shared<WatchedValues>();
    process.watched->on = true;
    process.sites.resize(2);
    process.sites[1].frames = {{.file = "train.py", .line = 20, .function = "reduce"}};
  }
  return run;
}

WatchedValues& values_of(lockstep::Run& run, std::int32_t rank) {
  return *process_of(run, Rank{rank}).watched;
}

// --- Modules

/// Row r is what rank r's module has, in its order.
lockstep::Run wrapped(const std::vector<std::vector<std::string>>& rows) {
  lockstep::Run run = watched(rows.size());
  for (std::size_t rank = 0; rank < rows.size(); ++rank) {
    for (const std::string& name : rows[rank])
      values_of(run, static_cast<std::int32_t>(rank))
          .tensors.push_back({.name = name, .at_start = true, .numel = 8});
  }
  return run;
}

Verdict modules(const lockstep::Run& run) { return checkers::WrappedModules().check(run); }

TEST(WrappedModules, FiresWhereTheOrderIsAnother) {
  const Verdict verdict = modules(wrapped({{"a", "b"}, {"a", "b"}, {"b", "a"}}));
  ASSERT_EQ(verdict.outcome, Outcome::kFail);
  ASSERT_EQ(verdict.findings.size(), 1U);
  EXPECT_EQ(verdict.findings[0].code, Code::kInitialValue);
  EXPECT_EQ(verdict.findings[0].culprits, RankSet{Rank{2}});
  EXPECT_EQ(verdict.findings[0].affected, (RankSet{Rank{0}, Rank{1}}));
  EXPECT_EQ(verdict.findings[0].headline,
            "the module has its tensors in another order on rank 2 than on rank 0");
  EXPECT_EQ(verdict.findings[0].evidence.at(0).text,
            "at place 0: a (8 elements) on rank 0, b (8 elements) on rank 2");
}

TEST(WrappedModules, OtherNamesAreANote) {
  const Verdict verdict = modules(wrapped({{"a", "b"}, {"a", "c"}}));
  ASSERT_EQ(verdict.findings.size(), 1U);
  EXPECT_EQ(verdict.outcome, Outcome::kPass);
  EXPECT_EQ(verdict.findings[0].severity, Severity::kNote);
  EXPECT_TRUE(verdict.findings[0].culprits.empty());
  EXPECT_EQ(verdict.findings[0].affected, RankSet::all(2));
  EXPECT_EQ(verdict.findings[0].headline,
            "the module has tensors of other names on rank 1 than on rank 0");
}

TEST(WrappedModules, StaysSilentWhereTheyAreAlikeOrIgnored) {
  EXPECT_EQ(modules(wrapped({{"a", "b"}, {"a", "b"}})).outcome, Outcome::kPass);
  lockstep::Run own = wrapped({{"a", "expert0"}, {"a", "expert1"}});
  for (std::int32_t rank = 0; rank < 2; ++rank)
    values_of(own, rank).tensors[1].ignored = true;
  EXPECT_TRUE(modules(own).findings.empty());
  EXPECT_TRUE(modules(wrapped({{"a", "b"}, {"a"}})).findings.empty());  // It may have been ended.
  lockstep::Run full = wrapped({{"a", "b"}, {"a", "c"}});
  values_of(full, 1).dropped = 1;
  EXPECT_TRUE(modules(full).findings.empty());
  lockstep::Run later = wrapped({{"a", "b"}, {"a"}});
  values_of(later, 0).tensors[1].at_start = false;
  EXPECT_TRUE(modules(later).findings.empty());
}

TEST(WrappedModules, CannotDecideWhereARankHasNone) {
  EXPECT_EQ(modules(wrapped({{"a"}, {}})).outcome, Outcome::kSkipped);
  EXPECT_EQ(modules(make_run({{}, {}})).outcome, Outcome::kSkipped);
}

// --- Buffers

/// Of one buffer, row r is what rank r held, look by look: after forwards, or before steps.
lockstep::Run buffers(std::uint32_t optimizer, const std::string& name,
                      const std::vector<std::vector<double>>& rows) {
  lockstep::Run run = watched(rows.size());
  for (std::size_t rank = 0; rank < rows.size(); ++rank) {
    WatchedValues& values = values_of(run, static_cast<std::int32_t>(rank));
    values.tensors.push_back({.name = name, .buffer = true, .at_start = true, .numel = 8});
    for (std::size_t look = 0; look < rows[rank].size(); ++look) {
      WatchEntry entry{};
      entry.flags = history::kValueSeen;
      entry.value.digest = static_cast<std::uint64_t>(rows[rank][look] * 1000);
      values.points.push_back(
          {.position = look + 1, .step = look + 1, .optimizer = optimizer, .entries = {entry}});
    }
  }
  return run;
}

Verdict sent(const lockstep::Run& run) { return checkers::SentBuffers().check(run); }

TEST(SentBuffers, FiresWhereOneIsNeverEqualAfterItWasSent) {
  const Verdict verdict = sent(buffers(history::kAfterBroadcast, "scale", {{1, 1, 1}, {2, 2, 2}}));
  ASSERT_EQ(verdict.findings.size(), 1U);
  EXPECT_EQ(verdict.findings[0].code, Code::kBufferDiffers);
  EXPECT_EQ(verdict.findings[0].severity, Severity::kWarning);
}

TEST(SentBuffers, StaysSilentWhereItWasEqualOnceOrMayDiffer) {
  EXPECT_TRUE(
      sent(buffers(history::kAfterBroadcast, "scale", {{1, 1, 1}, {2, 1, 2}})).findings.empty());
  EXPECT_TRUE(sent(buffers(history::kAfterBroadcast, "scale", {{1, 1}, {2, 2}})).findings.empty());
  EXPECT_TRUE(sent(buffers(0, "scale", {{1, 1, 1, 1}, {2, 2, 2, 2}})).findings.empty());
  lockstep::Run ignored = buffers(history::kAfterBroadcast, "scale", {{1, 1, 1}, {2, 2, 2}});
  values_of(ignored, 0).tensors[0].ignored = true;
  EXPECT_TRUE(sent(ignored).findings.empty());
}

TEST(SentBuffers, RunningStatisticsThatPartAreANote) {
  const Verdict verdict = sent(buffers(0, "bn.running_mean", {{1, 1, 1, 1}, {2, 2, 2, 2}}));
  ASSERT_EQ(verdict.findings.size(), 1U);
  EXPECT_EQ(verdict.findings[0].severity, Severity::kNote);
  EXPECT_EQ(verdict.outcome, Outcome::kPass);
  EXPECT_EQ(verdict.findings[0].headline, "bn.running_mean is each rank's own");
  EXPECT_NE(verdict.findings[0].cause.find("are sent to all"), std::string::npos);
  EXPECT_EQ(sent(watched(2)).outcome, Outcome::kSkipped);
}

TEST(SentBuffers, WhatTheProgramMayAverageItselfIsNotTold) {
  lockstep::Run run = buffers(0, "bn.running_mean", {{1, 1, 1, 1}, {2, 2, 2, 2}});
  for (std::int32_t rank = 0; rank < 2; ++rank)
    values_of(run, rank).tensors[0].at_start = false;
  EXPECT_TRUE(sent(run).findings.empty());
  for (std::int32_t rank = 0; rank < 2; ++rank)
    process_of(run, Rank{rank}).collectives[0].numel_in = 1;
  for (std::int32_t rank = 0; rank < 2; ++rank)
    process_of(run, Rank{rank}).collectives[0].numel_out = 1;
  ASSERT_EQ(sent(run).findings.size(), 1U);
  EXPECT_NE(sent(run).findings[0].cause.find("nothing sends them"), std::string::npos);
}

// --- Gradients

constexpr double kIn[] = {3, 5};  // What the two ranks hand in.

/// Parameters whose gradients are what was handed in times these factors, at each of four steps.
lockstep::Run reduced(const std::vector<double>& factors,
                      const std::vector<std::uint32_t>& versions) {
  lockstep::Run run = watched(2);
  for (std::int32_t rank = 0; rank < 2; ++rank) {
    WatchedValues& values = values_of(run, rank);
    for (std::size_t i = 0; i < factors.size(); ++i)
      values.tensors.push_back(
          {.name = "SGD 0, parameter " + std::to_string(i), .loose = true, .numel = 8 + i});
    for (std::uint64_t step = 0; step < 4; ++step) {
      WatchedPoint point{.position = (step + 1) * factors.size(), .step = step + 1};
      for (std::size_t i = 0; i < factors.size(); ++i) {
        const double handed = kIn[rank] + static_cast<double>(step + i);
        const double both = kIn[0] + kIn[1] + 2 * static_cast<double>(step + i);
        values.handed_in.push_back({.position = step * factors.size() + i,
                                    .numel = 8 + i,
                                    .value = {.digest = static_cast<std::uint64_t>(rank),
                                              .sums = {handed, -handed},
                                              .norm = 9},
                                    .site = 1,
                                    .version = versions[i]});
        WatchEntry entry{};
        entry.tensor = static_cast<std::uint32_t>(i);
        entry.flags = history::kValueSeen | history::kGradientSeen;
        entry.gradient = {.digest = 2, .sums = {factors[i] * both, -factors[i] * both}, .norm = 9};
        point.entries.push_back(entry);
      }
      values.points.push_back(point);
    }
  }
  return run;
}

Verdict sums(const lockstep::Run& run) { return checkers::GradientSums().check(run); }

TEST(GradientSums, FiresWhereSomeOfOneOptimizerAreNotDivided) {
  const Verdict verdict = sums(reduced({0.5, 1, 0.5}, {0, 0, 0}));
  ASSERT_EQ(verdict.outcome, Outcome::kFail);
  ASSERT_EQ(verdict.findings.size(), 1U);
  EXPECT_EQ(verdict.findings[0].code, Code::kUniformFactor);
  EXPECT_EQ(verdict.findings[0].names, std::vector<std::string>{"SGD 0, parameter 1"});
}

TEST(GradientSums, ANoteWhereTheFactorMayNotMatter) {
  lockstep::Run others = reduced({0.5, 1}, {0, 0}), apart = others, alike = others;
  for (std::int32_t rank = 0; rank < 2; ++rank) {
    for (WatchedTensor& tensor : values_of(others, rank).tensors)
      tensor.name.replace(0, 3, "AdamW");
    for (WatchedPoint& point : values_of(apart, rank).points)
      point.entries[1].settings = 7;
    for (WatchedHandedIn& handed : values_of(alike, rank).handed_in)
      handed.value.digest = 1;
  }
  for (const lockstep::Run& run : {others, apart, alike}) {
    const Verdict verdict = sums(run);
    ASSERT_EQ(verdict.findings.size(), 1U);
    EXPECT_EQ(verdict.findings[0].severity, Severity::kNote);
    EXPECT_EQ(verdict.outcome, Outcome::kPass);
  }
}

TEST(GradientSums, ANoteWhereTheOneMayHaveBeenDividedBefore) {
  const Verdict verdict = sums(reduced({0.5, 1}, {0, 1}));
  ASSERT_EQ(verdict.findings.size(), 1U);
  EXPECT_EQ(verdict.findings[0].severity, Severity::kNote);
  EXPECT_EQ(verdict.outcome, Outcome::kPass);
}

TEST(GradientSums, ANoteWhereTheRanksMayHaveCountedTheirSamples) {
  lockstep::Run run = reduced({1, 0.5}, {0, 0});
  ASSERT_EQ(sums(run).outcome, Outcome::kFail);
  Process& process = process_of(run, Rank{0});
  Collective count = process.collectives[0];
  count.numel_in = count.numel_out = 1;
  process.collectives.push_back(count);
  EXPECT_EQ(sums(run).outcome, Outcome::kFail);  // Once in four steps: something else.
  process.collectives.push_back(count);
  EXPECT_EQ(sums(run).outcome, Outcome::kPass);
  ASSERT_EQ(sums(run).findings.size(), 1U);
  EXPECT_EQ(sums(run).findings[0].severity, Severity::kNote);
}

TEST(GradientSums, StaysSilentWhereOnlyOneRankHandsInAnything) {
  lockstep::Run run = reduced({1, 0.5}, {0, 0});
  ASSERT_EQ(sums(run).outcome, Outcome::kFail);
  for (WatchedHandedIn& handed : values_of(run, 1).handed_in) {
    if (handed.position % 2 == 0)
      handed.value = {};
  }
  for (WatchedHandedIn& handed : values_of(run, 0).handed_in) {
    if (handed.position % 2 == 0)
      handed.value.sums[0] += kIn[1] + static_cast<double>(handed.position / 2);
    if (handed.position % 2 == 0)
      handed.value.sums[1] = -handed.value.sums[0];
  }
  EXPECT_TRUE(sums(run).findings.empty());
}

TEST(GradientSums, ANoteWhereAllAreSummed) {
  const Verdict verdict = sums(reduced({1, 1}, {0, 0}));
  ASSERT_EQ(verdict.findings.size(), 1U);
  EXPECT_EQ(verdict.findings[0].severity, Severity::kNote);
  EXPECT_TRUE(sums(reduced({1, 1}, {1, 1})).findings.empty());  // Divided before, perhaps.
}

TEST(GradientSums, StaysSilentWhereAllAreAveragedOrScaled) {
  EXPECT_EQ(sums(reduced({0.5, 0.5}, {0, 0})).outcome, Outcome::kPass);
  EXPECT_TRUE(sums(reduced({0.5, 0.5}, {0, 0})).findings.empty());
  EXPECT_TRUE(sums(reduced({0.3, 0.5}, {0, 0})).findings.empty());
  EXPECT_EQ(sums(reduced({0.3, 0.7}, {0, 0})).outcome, Outcome::kSkipped);
}

// --- Tensors of collectives

Verdict misused(const std::vector<WatchedMisuse>& misuses, const std::string& function = "reduce") {
  lockstep::Run run = watched(2);
  process_of(run, Rank{1}).sites[1].frames[0].function = function;
  values_of(run, 1).misuses = misuses;
  return checkers::CollectiveTensors().check(run);
}

TEST(CollectiveTensors, FiresWhereATensorIsChangedAgainAndAgain) {
  const WatchedMisuse touched{.numel = 8, .what = history::WatchMisuse::kTouched, .site = 1};
  const Verdict verdict = misused({touched, touched, touched});
  ASSERT_EQ(verdict.findings.size(), 1U);
  EXPECT_EQ(verdict.findings[0].code, Code::kTouchedInFlight);
  EXPECT_EQ(verdict.findings[0].culprits, RankSet{Rank{1}});
  EXPECT_TRUE(misused({touched, touched}).findings.empty());
  EXPECT_TRUE(misused({touched, touched, touched}, "_engine_run_backward").findings.empty());
}

TEST(CollectiveTensors, StaysSilentWhereMostCallsOfTheLineAreNotTouched) {
  const WatchedMisuse touched{.numel = 8, .what = history::WatchMisuse::kTouched, .site = 1};
  lockstep::Run run = watched(2);
  Process& process = process_of(run, Rank{1});
  values_of(run, 1).misuses = {touched, touched, touched};
  process.collectives[0].site = 1;
  process.collectives.resize(6, process.collectives[0]);
  EXPECT_EQ(checkers::CollectiveTensors().check(run).findings.size(), 1U);
  process.collectives.resize(7, process.collectives[0]);
  EXPECT_TRUE(checkers::CollectiveTensors().check(run).findings.empty());
  process.collectives.resize(1);
  process.dropped = 5;  // Then nobody knows of fewer than are looked at.
  EXPECT_TRUE(checkers::CollectiveTensors().check(run).findings.empty());
}

/// A parameter of the same size, at two steps after an optimizer was given it.
TEST(CollectiveTensors, StaysSilentWhereTheRootSendsWhatItMadeOfIt) {
  const auto seen = [](std::uint64_t digest_of_the_other, std::uint64_t numel) {
    lockstep::Run run = watched(2);
    values_of(run, 1).misuses = {
        {.at_ns = kStart + kMs, .numel = 8, .what = history::WatchMisuse::kUndefined, .site = 1}};
    for (std::int32_t rank = 0; rank < 2; ++rank) {
      WatchedValues& values = values_of(run, rank);
      values.tensors.push_back({.name = "SGD 0, parameter 0", .loose = true, .numel = numel});
      for (std::uint64_t step = 0; step < 3; ++step) {
        WatchEntry entry{};
        entry.flags = history::kValueSeen;
        entry.value.digest = rank == 0 || step == 0 ? step : digest_of_the_other + step;
        values.points.push_back({.at_ns = kStart + 2 * step * kMs,
                                 .position = step + 1,
                                 .step = step + 1,
                                 .entries = {entry}});
      }
    }
    return checkers::CollectiveTensors().check(run).findings.size();
  };
  EXPECT_EQ(seen(0, 8), 0U);
  EXPECT_EQ(seen(100, 8), 1U);
  EXPECT_EQ(seen(0, 9), 1U);  // Of another one it says nothing.
}

TEST(CollectiveTensors, FiresWhereWhatAReduceLeftIsHandedOn) {
  const Verdict verdict =
      misused({{.numel = 8, .what = history::WatchMisuse::kUndefined, .site = 1, .later = 1}});
  ASSERT_EQ(verdict.findings.size(), 1U);
  EXPECT_EQ(verdict.findings[0].code, Code::kUndefinedResult);
  EXPECT_EQ(misused({}).outcome, Outcome::kPass);
}

}  // namespace
}  // namespace lockstep::testing
