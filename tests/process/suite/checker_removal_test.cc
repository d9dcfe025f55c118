// Goal: every checker is needed. Method: all mutants run once; their closed runs are judged again
// with one checker left out at a time, and somebody must then survive.
#include <map>
#include <set>

#include "checkers/judge.h"
#include "harness/history/run_directory.h"
#include "tests/process/suite/suite_fixture.h"

namespace lockstep {
namespace {

// They find nothing wrong: they say what is not proven. Without them nothing passes.
const std::set<std::string> kGuards{"marks", "history"};
// They judge programs only: the suite knows better.
const std::set<std::string> kOfPrograms{
    "buffers",   "collective-tensors",  "descriptors", "devices",        "exiting",
    "finite",    "gradient-sums",       "joining",     "leftovers",      "loaded-data",
    "loop-exit", "unreduced-gradients", "replicas",    "wrapped-modules"};
checkers::Checkers all_but(const std::string& name) {
  checkers::Checkers some = checkers::all_checkers();
  some.erase(std::remove_if(some.begin(), some.end(),
                            [&](const auto& checker) { return checker->name() == name; }),
             some.end());
  return some;
}

TEST_F(SuiteProcess, WithoutAnyOneCheckerAMutantSurvives) {
  CaseRunner runner(*supervisor_, options_, *directory_);
  std::map<std::string, std::set<std::string>> survivors;
  std::size_t mutants = 0;
  for (const auto& scenario : all_scenarios()) {
    for (const Case& cell : mutant_cases(*scenario, 1)) {
      const Result<CaseReport> report = runner.run(cell);
      ASSERT_TRUE(report) << report.error().what;
      ASSERT_EQ(report->outcome, Outcome::kPass) << report->reason;
      const Result<lockstep::Run> run = history::open_run(report->run_directory);
      ASSERT_TRUE(run) << run.error().what;
      const Result<Case> saved = case_of(run->plan);
      ASSERT_TRUE(saved) << saved.error().what;
      ++mutants;
      for (const auto& checker : checkers::all_checkers()) {
        const std::string name(checker->name());
        if (!judge_case(*saved, *run, all_but(name)).mutants.front().caught)
          survivors[name].insert(std::string(cell.mutant->name));
      }
    }
  }
  for (const auto& checker : checkers::all_checkers()) {
    const std::string name(checker->name());
    fmt::print("without {}: {} of {} mutants survive\n", name, survivors[name].size(), mutants);
    EXPECT_EQ(survivors[name].empty(), kGuards.count(name) + kOfPrograms.count(name) > 0) << name;
  }
}

TEST_F(SuiteProcess, WithoutAGuardNothingPasses) {
  CaseRunner runner(*supervisor_, options_, *directory_);
  const Case cell = find_case(all_scenarios().front()->cells(), "gradient-equivalence/ddp/w2/");
  const Result<CaseReport> report = runner.run(cell);
  ASSERT_TRUE(report) << report.error().what;
  ASSERT_EQ(report->outcome, Outcome::kPass) << report->reason;
  const Result<lockstep::Run> run = history::open_run(report->run_directory);
  ASSERT_TRUE(run) << run.error().what;
  for (const std::string& name : kGuards)
    EXPECT_EQ(judge_case(cell, *run, all_but(name)).outcome, Outcome::kUndecided) << name;
}

}  // namespace
}  // namespace lockstep
