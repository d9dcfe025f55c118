// The suite: which cases there are, which are asked for, and the report of running them.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "checkers/judge.h"
#include "harness/base/error.h"
#include "harness/history/run_directory.h"
#include "harness/launch/supervisor.h"
#include "harness/verdict/report.h"
#include "scenarios/scenario.h"
#include "scenarios/subject.h"

namespace lockstep {

struct SuiteOptions {
  std::vector<std::string> scenarios{};  ///< Empty: all.
  std::vector<std::string>
      implementations{};              ///< Empty: all; "mutant/NAME" and "mutant" (all of them) too.
  std::vector<std::int32_t> ranks{};  ///< Empty: all.
  std::vector<std::string> dtypes{};  ///< Empty: all.
  std::vector<std::string> cases{};   ///< Ids; empty: all.
  std::string device{"cpu"};          ///< "cpu" or "cuda".
  bool mutants{true};
  std::uint64_t seed{1};
  std::string rank_host{};       ///< Programs that serve the conversation.
  std::string reference_host{};  ///< Empty: the ranks' program serves the reference, too.
  SubjectChoice subject{};  ///< In the place of ours, where a user has named an implementation.
  double request_limit_s{120};
  std::size_t jobs{};                       ///< Cases at a time.
  std::vector<std::string> lane_command{};  ///< Starts a process that calls serve_cases().
  std::vector<std::string> command{};       ///< As the user gave it; for the report.
};

/// The cases that `options` ask for, in the order in which they run: each scenario's cells, then
/// its mutants. Errors: kUsage naming a scenario, implementation, world size or dtype that does not
/// exist, and those that do.
Result<std::vector<Case>> select_cases(const SuiteOptions& options);

/// The same of what a user has named.
Result<std::vector<Case>> select_cases(const SuiteOptions& options,
                                       const std::vector<Subject>& subjects);

/// The same of what the options name, which is asked what it declares; `told`: that, or null.
Result<std::vector<Case>> select_cases(launch::Supervisor& supervisor, const SuiteOptions& options,
                                       history::RunDirectory& directory,
                                       std::vector<Subject>* told);

/// Told when the cases are known, when one begins and when it has ended.
struct SuiteProgress {
  std::function<void(const std::vector<Case>&, const std::vector<Subject>&)> begun{};
  std::function<void(const Case&)> running{};
  std::function<void(const CaseReport&)> finished{};
};

/// The suite over the subject that the options name: asks it what it declares, and runs the cases
/// that follow. Errors: as run_suite(), introduce() and select_cases().
Result<Report> run_subject_suite(launch::Supervisor& supervisor, const SuiteOptions& options,
                                 history::RunDirectory& directory, const SuiteProgress& progress);

/// Runs `cases`, some at a time, and reports them in their order. The report holds what was run,
/// also when it was interrupted (its reason says so). Errors: what keeps the suite from running at
/// all.
Result<Report> run_suite(launch::Supervisor& supervisor, const SuiteOptions& options,
                         const std::vector<Case>& cases, history::RunDirectory& directory,
                         const SuiteProgress& progress);

/// The report of a case of which nothing is known yet but what it is.
CaseReport report_of(const Case& cell);

/// Whether the question is asked at all.
inline bool is_run(const Case& cell) {
  return cell.not_applicable.empty() && (cell.not_declared.empty() || cell.tried);
}

/// Judges a finished case again, as `lockstep check` does. `run` is the closed run of `cell`.
CaseReport judge_case(const Case& cell, const Run& run,
                      const checkers::Checkers& checkers = checkers::all_checkers());

/// Judges a case that was played into `directory`, whose run says which versions it had.
Result<CaseReport> judge_played(const Case& cell, const std::string& directory,
                                std::map<std::string, std::string>& versions);

/// The case that a finished run was, from its plan. Errors: kMalformedHistory, not the run of a
/// case.
Result<Case> case_of(const Plan& plan);

/// Judges the finished run of a suite, or of one case, from its directory alone.
Result<Report> judge_saved(const std::string& directory);

}  // namespace lockstep
