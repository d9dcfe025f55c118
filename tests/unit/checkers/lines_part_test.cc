// Goal: a call left out behind a helper is found by its callers' lines, though all calls agree;
// whoever fails over what it got instead is not blamed for it.
#include "checkers/order/lines_part.h"

#include <gtest/gtest.h>

#include "checkers/judge.h"
#include "tests/support/typed_run.h"

namespace lockstep::testing {
namespace {

/// All calls come from the helper's one line, called from these.
lockstep::Run called_from(std::vector<Row> rows) {
  lockstep::Run run = make_run(rows);
  for (Process& process : run.processes) {
    for (CallSite& site : process.sites) {
      if (site.frames.empty())
        continue;
      Frame caller = site.frames.front();
      caller.function = "main";
      site.frames.front() = {"/app/x.py", 5, "x.py", 5, "share", {}};
      site.frames.insert(std::next(site.frames.begin()), caller);
    }
  }
  return run;
}

Call shared(std::int32_t line) { return broadcast("dp", 4).at("x.py", line); }

/// Its size, then itself, as large as it was.
Row twice(std::int32_t line, std::uint64_t bytes = 50) {
  return {shared(line), broadcast("dp", bytes).at("x.py", line)};
}

/// Rank 0 left out line 20, ended well, and the others fail in their last call.
lockstep::Run left_out(std::size_t world) {
  std::vector<Row> rows(world, twice(20, 30) + twice(22, 7) + Row{shared(24).failed()});
  rows[0] = twice(22, 30) + twice(24, 7);
  lockstep::Run run = called_from(rows);
  ends_with_status(run, Rank{0}, 0, stall_ns(run));
  for (std::int32_t rank = 1; rank < static_cast<std::int32_t>(world); ++rank)
    raises(run, Rank{rank}, "RuntimeError: Connection closed by peer",
           stall_ns(run) + static_cast<unsigned>(rank) * kMs);
  return run;
}

Finding only_finding(const lockstep::Run& run) {
  const checkers::Judgement judged = checkers::judge(run, checkers::all_checkers());
  EXPECT_EQ(judged.findings.size(), 1U);
  return judged.findings.empty() ? Finding{} : judged.findings.front();
}

TEST(LinesPart, OfThreeTheOneThatLeftOutACallIsNamed) {
  for (const std::size_t world : {3U, 4U}) {
    const Finding finding = only_finding(left_out(world));
    EXPECT_EQ(finding.code, Code::kMissingCall);
    EXPECT_EQ(finding.culprits, RankSet{Rank{0}});
    ASSERT_GE(finding.sites.size(), 2U);
    EXPECT_EQ(finding.sites[0].line, 22);
    EXPECT_EQ(finding.sites[0].role, "culprit");
    EXPECT_EQ(finding.sites[1].line, 20);
  }
}

TEST(LinesPart, OfTwoBothSidesAreShown) {
  const Finding finding = only_finding(left_out(2));
  EXPECT_EQ(finding.code, Code::kMissingCall);
  EXPECT_TRUE(finding.culprits.empty());
  EXPECT_EQ(finding.also.front(), Code::kExtraCall);
}

TEST(LinesPart, AHealthyEndIsSilent) {
  const Row all = twice(20) + twice(22);
  EXPECT_EQ(checkers::judge(called_from({all, all, all}), checkers::all_checkers()).outcome,
            Outcome::kPass);
  // if rank == 0: share(x) else: y = share(None)
  const Row root = twice(19) + twice(22);
  EXPECT_EQ(checkers::judge(called_from({root, all, all}), checkers::all_checkers()).outcome,
            Outcome::kPass);
}

TEST(LinesPart, LinesThatAlwaysDifferAreNoSign) {
  const Row others = twice(20) + twice(22) + Row{shared(24).failed()};
  const Row root = twice(19) + twice(21);
  const lockstep::Run run = called_from({root, others, others});
  EXPECT_FALSE(checkers::left_out_behind_a_helper(run, group_views(run).front()).has_value());
}

TEST(LinesPart, WhatIsNotKnownConvictsNobody) {
  lockstep::Run run = left_out(3);
  run.journal_complete = false;
  EXPECT_FALSE(checkers::left_out_behind_a_helper(run, group_views(run).front()).has_value());
  run = left_out(3);
  process_of(run, Rank{0}).groups[0].seen_from_creation = false;
  EXPECT_FALSE(checkers::left_out_behind_a_helper(run, group_views(run).front()).has_value());
}

/// Rank 1 raises by itself after its last call.
Finding raised_after(const Row& root, const Row& other) {
  lockstep::Run run = called_from({root, other});
  raises(run, Rank{1}, "KeyError: 'order'", last_event(run) + 50 * kMs);
  return only_finding(run);
}

TEST(LinesPart, WhoRaisesOverWhatAnotherLineSentIsNotBlamed) {
  const Finding finding = raised_after(twice(22), twice(20));
  EXPECT_EQ(finding.code, Code::kRankDied);
  EXPECT_TRUE(finding.culprits.empty());
  EXPECT_NE(finding.evidence.back().text.find("x.py:22"), std::string::npos);
}

TEST(LinesPart, LinesThatBelongTogetherAreNoExcuse) {
  EXPECT_EQ(raised_after(twice(22), twice(22)).culprits, RankSet{Rank{1}});
  const Row root = twice(22) + twice(30) + twice(22), other = twice(20) + twice(30) + twice(20);
  EXPECT_EQ(raised_after(root, other).culprits, RankSet{Rank{1}});
}

/// Rank 0 alone runs line 30 after every second round; what it gives there meets the others' next
/// round, for which it then gives nothing, as DistributedDataParallel does.
lockstep::Run evaluated_by_one(std::size_t world, bool leaves_early) {
  const Row round{broadcast("dp", 4).at("x.py", 10), all_reduce("dp", 8).at("x.py", 10)};
  Row one, others;
  for (int step = 0; step < 8; ++step) {
    if (!(step > 0 && step % 2 == 0))
      one.push_back(round[0]);
    one.push_back(round[1]);
    if (step % 2 == 1)
      one.push_back(broadcast("dp", 4).at("x.py", 30));
    if (step < 7 || !leaves_early)
      others = others + round;
  }
  one.back() = one.back().failed();
  std::vector<Row> rows(world, others);
  rows[0] = one;
  lockstep::Run run = make_run(rows);
  for (std::int32_t rank = 1; rank < static_cast<std::int32_t>(world); ++rank)
    ends_with_status(run, Rank{rank}, 0, stall_ns(run));
  raises(run, Rank{0}, "RuntimeError: Connection closed by peer", stall_ns(run) + kMs);
  return run;
}

TEST(LinesOfSome, WhatOneRankAloneRunsIsToldAndNotTheOthersEnd) {
  for (const std::size_t world : {2U, 3U}) {
    const Finding finding = only_finding(evaluated_by_one(world, false));
    EXPECT_EQ(finding.code, Code::kExtraCall);
    EXPECT_EQ(finding.culprits, world == 2 ? RankSet{} : RankSet{Rank{0}});
    ASSERT_FALSE(finding.sites.empty());
    EXPECT_EQ(finding.sites[0].line, 30);
  }
}

TEST(LinesOfSome, SaysNothingWhereTheOthersMayHaveLeftTooSoon) {
  for (const Finding& finding :
       checkers::judge(evaluated_by_one(2, true), checkers::all_checkers()).findings)
    EXPECT_NE(finding.code, Code::kExtraCall);
}

}  // namespace
}  // namespace lockstep::testing
