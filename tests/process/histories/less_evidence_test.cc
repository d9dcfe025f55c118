// Goal: a hang is judged as far as its evidence goes. Method: the saved runs whose ranks hung,
// without what the supervisor wrote, without any times, or without the histories of some ranks:
// nothing passes then, nobody else is blamed, and the call and its ranks are still named.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "checkers/judge.h"
#include "harness/history/run_directory.h"
#include "tests/support/saved_run.h"

namespace lockstep {
namespace {

using checkers::Judgement;

Judgement judged(const Run& run) { return checkers::judge(run, checkers::all_checkers()); }

void drop_journal(Run& run) {
  run.starts.clear();
  run.ends.clear();
  run.acted.clear();
  run.states.clear();
  run.stacks.clear();
  run.raised.clear();
  run.launcher_ends.clear();
  run.journal_complete = false;
  run.ended_ns = 0;
}

void drop_times(Run& run) {
  drop_journal(run);
  for (Process& process : run.processes) {
    process.opened_ns = process.closed_ns = 0;
    for (Collective& call : process.collectives) {
      call.issued_ns = 0;
      for (auto* const at : {&call.returned_ns, &call.completed_ns}) {
        if (*at)
          *at = 0;
      }
    }
  }
}

void drop_ranks(Run& run, const RankSet& ranks) {
  std::erase_if(run.processes, [&](const Process& process) {
    return process.rank && ranks.contains(*process.rank);
  });
}

RankSet culprits_of(const Judgement& judgement) {
  RankSet culprits;
  for (const Finding& finding : judgement.findings) {
    for (const Rank rank : finding.culprits)
      culprits.insert(rank);
  }
  return culprits;
}

bool lacks_a_record(const Judgement& judgement) {
  return std::any_of(judgement.verdicts.begin(), judgement.verdicts.end(),
                     [](const Verdict& verdict) { return verdict.lacks.has_value(); });
}

/// The call in which ranks hung, and each of these ranks, in a finding or in a reason.
bool names(const Judgement& judgement, const Finding& hang) {
  const std::string call = fmt::format("{} {}#{}", hang.op, hang.group, hang.seq.value_or(0));
  const auto says = [&](const std::string& text) { return text.find(call) != std::string::npos; };
  return std::any_of(judgement.findings.begin(), judgement.findings.end(),
                     [&](const Finding& finding) {
                       return finding.group == hang.group && finding.seq == hang.seq;
                     }) ||
         std::any_of(judgement.verdicts.begin(), judgement.verdicts.end(),
                     [&](const Verdict& verdict) { return says(verdict.reason); });
}

class LessEvidence : public ::testing::Test {
 protected:
  /// Of the saved runs, each with what was found at first.
  template <class Test>
  void for_each_hang(Test test) {
    for (const std::string& name : testing::saved_runs("hang-")) {
      const testing::SavedRun saved(name);
      SCOPED_TRACE(name);
      const auto run = history::open_run(saved.path());
      ASSERT_TRUE(run) << run.error().what;
      const Judgement whole = judged(*run);
      ASSERT_FALSE(whole.findings.empty());
      test(name, *run, whole);
      ++hangs_;
    }
  }
  std::size_t hangs_{};
};

void expect_no_more(const Judgement& less, const Judgement& whole) {
  EXPECT_NE(less.outcome, Outcome::kPass);
  EXPECT_TRUE(culprits_of(less).minus(culprits_of(whole)).empty());
  EXPECT_TRUE(lacks_a_record(less));
}

TEST_F(LessEvidence, WithoutTheJournalOrTheTimesTheCallAndItsRanksAreNamed) {
  for (void (*const drop)(lockstep::Run&) : {drop_journal, drop_times}) {
    std::vector<std::string> unnamed;
    for_each_hang([&](const std::string& name, lockstep::Run run, const Judgement& whole) {
      drop(run);
      const Judgement less = judged(run);
      expect_no_more(less, whole);
      if (!names(less, whole.findings.front()))
        unnamed.push_back(name);
    });
    EXPECT_LE(unnamed.size() * 6, hangs_) << fmt::format("{}", fmt::join(unnamed, ", "));
  }
  EXPECT_GE(hangs_, 2 * 24U);
}

TEST_F(LessEvidence, WithoutHalfOfTheRanksNobodyElseIsBlamed) {
  for_each_hang([&](const std::string&, lockstep::Run run, const Judgement& whole) {
    RankSet second_half;
    for (const Rank rank : RankSet::all(run.plan.world_size)) {
      if (rank.value >= run.plan.world_size / 2)
        second_half.insert(rank);
    }
    drop_ranks(run, second_half);
    expect_no_more(judged(run), whole);
  });
}

TEST_F(LessEvidence, WhereTheCulpritsHistoryIsGoneNobodyIsBlamed) {
  for_each_hang([&](const std::string&, lockstep::Run run, const Judgement& whole) {
    const RankSet culprits = culprits_of(whole);
    if (culprits.empty())
      return;
    drop_journal(run);
    drop_ranks(run, culprits);
    const Judgement less = judged(run);
    expect_no_more(less, whole);
    EXPECT_TRUE(culprits_of(less).empty());
  });
}

}  // namespace
}  // namespace lockstep
