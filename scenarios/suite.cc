#include "scenarios/suite.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "harness/base/clock.h"
#include "harness/base/version.h"
#include "harness/history/journal.h"
#include "harness/verdict/exit_codes.h"
#include "scenarios/case_runner.h"
#include "scenarios/lanes.h"

namespace lockstep {
namespace {

const std::string kSkipped = "skipped/";  // Before the id of a subject's case that was not run.

template <class T>
bool wanted(const std::vector<T>& filter, const T& value) {
  return filter.empty() || std::find(filter.begin(), filter.end(), value) != filter.end();
}

bool implementation_wanted(const SuiteOptions& options, const Case& cell) {
  if (options.implementations.empty())
    return cell.mutant == nullptr || options.mutants;
  const bool any_mutant =
      cell.mutant != nullptr && wanted<std::string>(options.implementations, "mutant");
  return any_mutant || wanted(options.implementations, cell.implementation);
}

// Every filter value must name something that exists; a typing error must not pass as "nothing
// applicable".
Result<void> known(const char* what, const std::vector<std::string>& filter,
                   const std::set<std::string>& all) {
  for (const std::string& value : filter) {
    if (all.count(value) == 0) {
      return Error{Error::Kind::kUsage, fmt::format("no {} is called {}", what, value),
                   fmt::format("there are: {}", fmt::join(all, ", "))};
    }
  }
  return {};
}

std::vector<Case> every_case(std::uint64_t seed) {
  std::vector<Case> cases;
  for (const auto& scenario : all_scenarios()) {
    for (Case& cell : scenario->cells()) {
      cell.seed = seed;
      cases.push_back(std::move(cell));
    }
    for (const auto& [implementation, why] : scenario->not_applicable()) {
      Case cell{.scenario = std::string(scenario->name()), .implementation = implementation};
      cell.seed = seed;
      cell.not_applicable = why;
      cell.id = cell.scenario + "/" + implementation;
      cases.push_back(std::move(cell));
    }
    for (Case& cell : mutant_cases(*scenario, seed))
      cases.push_back(std::move(cell));
  }
  return cases;
}

// Outcome and exit status of a suite from its cases.
void conclude(Report& report) {
  bool any_pass = false;
  bool undecided = false;
  bool failed = false;
  for (const CaseReport& result : report.cases) {
    failed |= result.outcome == Outcome::kFail;
    undecided |= result.outcome == Outcome::kUndecided && result.required;
    any_pass |= result.outcome == Outcome::kPass;
  }
  const bool interrupted = !report.reason.empty();
  if (failed) {
    report.outcome = Outcome::kFail;
    report.exit_status = status_of(ExitCode::kFinding);
  } else if (interrupted) {
    report.outcome = Outcome::kUndecided;
    report.exit_status = status_of(ExitCode::kInterrupted);
  } else if (undecided) {
    report.outcome = Outcome::kUndecided;
    report.exit_status = status_of(ExitCode::kUndecided);
  } else if (any_pass) {
    report.outcome = Outcome::kPass;
    report.exit_status = status_of(ExitCode::kNothingFound);
  } else {
    report.outcome = Outcome::kSkipped;
    report.exit_status = status_of(ExitCode::kNotApplicable);
  }
}

// The suite's own run.json and journal: what is not said by any of its cases.
Result<history::JournalWriter> open_journal(const SuiteOptions& options,
                                            const std::vector<Case>& cases,
                                            const history::RunDirectory& directory) {
  Plan plan;
  plan.id = directory.id();
  plan.command = options.command;
  plan.seed = options.seed;
  plan.versions["lockstep"] = kVersion;
  for (const Case& cell : cases) {
    plan.cases.push_back(cell.id);
    if (cell.of_subject && !is_run(cell))
      plan.contract[kSkipped + cell.id] = report_of(cell).reason;
  }
  if (auto written = directory.write_plan(plan); !written)
    return written.error();
  return history::JournalWriter::create(directory.journal());
}

CaseReport report_on(const Case& cell, const Run& run, const std::string& directory,
                     std::map<std::string, std::string>& versions) {
  versions = run.plan.versions;
  CaseReport report = judge_case(cell, run);
  report.run_directory = directory;
  return report;
}

Result<CaseReport> judge_saved_case(const std::string& directory,
                                    std::map<std::string, std::string>& versions) {
  const Result<Run> run = history::open_run(directory);
  if (!run)
    return run.error();
  const Result<Case> cell = case_of(run->plan);
  if (!cell)
    return Error{cell.error().kind,
                 fmt::format("{} cannot be judged: {}", directory, cell.error().what), ""};
  return report_on(*cell, *run, directory, versions);
}

}  // namespace

namespace {

/// Those of `cases` that the filters leave.
Result<std::vector<Case>> filtered(const SuiteOptions& options, std::vector<Case> cases) {
  for (Case& cell : cases)
    cell.device = options.device;
  std::set<std::string> scenarios, implementations{"mutant"}, dtypes, ids;
  for (const Case& cell : cases) {
    scenarios.insert(cell.scenario);
    implementations.insert(cell.implementation);
    dtypes.insert(cell.dtype);
    ids.insert(cell.id);
  }
  if (auto ok = known("scenario", options.scenarios, scenarios); !ok)
    return ok.error();
  if (auto ok = known("implementation", options.implementations, implementations); !ok)
    return ok.error();
  if (auto ok = known("dtype", options.dtypes, dtypes); !ok)
    return ok.error();
  if (auto ok = known("case", options.cases, ids); !ok)
    return Error{ok.error().kind, ok.error().what, "lockstep suite --list prints all of them"};
  for (const std::int32_t ranks : options.ranks) {
    if (ranks < 2 || ranks > 64)
      return Error{Error::Kind::kUsage, fmt::format("--ranks must be 2 to 64, got {}", ranks), ""};
  }
  std::erase_if(cases, [&](const Case& cell) {
    return !wanted(options.scenarios, cell.scenario) || !implementation_wanted(options, cell) ||
           !wanted(options.ranks, cell.world_size) || !wanted(options.dtypes, cell.dtype) ||
           !wanted(options.cases, cell.id);
  });
  return cases;
}

/// One line for what cannot be had here, instead of one for each of its cells.
Case absent_case(const Subject& subject) {
  Case cell{.scenario = subject.kind, .implementation = subject.name};
  cell.of_subject = true;
  cell.not_applicable = subject.absent;
  cell.id = subject.kind + "/" + subject.name;
  return cell;
}

}  // namespace

Result<std::vector<Case>> select_cases(const SuiteOptions& options) {
  return filtered(options, every_case(options.seed));
}

Result<std::vector<Case>> select_cases(const SuiteOptions& options,
                                       const std::vector<Subject>& subjects) {
  std::vector<Case> cases;
  for (const Subject& subject : subjects) {
    if (!subject.absent.empty()) {
      cases.push_back(absent_case(subject));
      continue;
    }
    std::set<std::pair<std::string, std::string>> told;  // A reason once, not for every cell.
    for (const auto& scenario : all_scenarios()) {
      for (Case& cell : scenario->cells(subject)) {
        cell.seed = options.seed;
        cell.named_by = options.subject.words;
        if (is_run(cell) || told.emplace(cell.scenario, cell.not_declared).second)
          cases.push_back(std::move(cell));
      }
    }
    for (Case& cell : mutant_cases(subject, options.seed)) {
      cell.named_by = options.subject.words;
      cases.push_back(std::move(cell));
    }
  }
  return filtered(options, std::move(cases));
}

namespace {

/// Hands the cases out to lanes and takes the reports in their order.
class Running {
 public:
  Running(const std::vector<Case>& cases, const history::RunDirectory& directory,
          const SuiteProgress& progress, Report& report)
      : cases_(cases), directory_(directory), progress_(progress), report_(report) {}

  Result<void> run(Lanes& lanes) {
    for (std::size_t lane = 0; lane < lanes.count(); ++lane) {
      if (auto given = give(lanes, lane); !given)
        return given;
    }
    tell();
    while (report_.cases.size() < cases_.size()) {
      Result<Played> played = lanes.wait();
      if (!played && played.error().kind == Error::Kind::kInterrupted)
        break;
      if (!played)
        return played.error();
      if (auto given = give(lanes, played->lane); !given)
        return given;
      if (auto judged = take(*played); !judged)
        return judged;
      tell();
    }
    return {};
  }

 private:
  /// The next one that is run; those before it that are not are done.
  Result<void> give(Lanes& lanes, std::size_t lane) {
    for (; next_ < cases_.size() && !is_run(cases_[next_]); ++next_)
      done_.emplace(next_, report_of(cases_[next_]));
    if (next_ == cases_.size())
      return {};
    if (progress_.running)
      progress_.running(cases_[next_]);
    return lanes.give(lane, next_++);
  }

  Result<void> take(const Played& played) {
    const Case& cell = cases_[played.index];
    Result<CaseReport> judged =
        judge_played(cell, history::case_path(directory_.path(), cell.id), report_.versions);
    if (!judged)
      return judged.error();
    judged->wall_s = static_cast<double>(played.took_ns) / 1e9;
    done_.emplace(played.index, std::move(*judged));
    return {};
  }

  void tell() {
    for (auto at = done_.find(report_.cases.size()); at != done_.end();
         at = done_.find(report_.cases.size())) {
      report_.cases.push_back(std::move(at->second));
      done_.erase(at);
      if (progress_.finished)
        progress_.finished(report_.cases.back());
    }
  }

  const std::vector<Case>& cases_;
  const history::RunDirectory& directory_;
  const SuiteProgress& progress_;
  Report& report_;
  std::size_t next_{};
  std::map<std::size_t, CaseReport> done_{};  // Before one that is not.
};

Result<Report> run_all(launch::Supervisor& supervisor, const SuiteOptions& options,
                       const std::vector<Case>& cases, history::RunDirectory& directory,
                       const SuiteProgress& progress) {
  Result<history::JournalWriter> journal = open_journal(options, cases, directory);
  if (!journal)
    return journal.error();
  Report report;
  report.run = directory.id();
  report.command = options.command;
  const std::uint64_t begun_ns = now_ns();
  Lanes lanes(supervisor);
  if (auto started = lanes.start(options, directory); !started)
    return started.error();
  if (auto run = Running(cases, directory, progress, report).run(lanes); !run)
    return run.error();
  if (const std::string why = supervisor.interrupted(); !why.empty()) {
    report.reason = fmt::format("interrupted ({}) after {} of {} cases", why, report.cases.size(),
                                cases.size());
    (void)journal->append(
        Acted{.at_ns = now_ns(), .action = "interrupted", .reason = report.reason});
  }
  if (auto closed = journal->close(); !closed)
    return closed.error();
  report.wall_s = static_cast<double>(now_ns() - begun_ns) / 1e9;
  conclude(report);
  return report;
}

}  // namespace

Result<Report> run_suite(launch::Supervisor& supervisor, const SuiteOptions& options,
                         const std::vector<Case>& cases, history::RunDirectory& directory,
                         const SuiteProgress& progress) {
  if (progress.begun)
    progress.begun(cases, {});
  return run_all(supervisor, options, cases, directory, progress);
}

Result<std::vector<Case>> select_cases(launch::Supervisor& supervisor, const SuiteOptions& options,
                                       history::RunDirectory& directory,
                                       std::vector<Subject>* told) {
  const Result<std::vector<Subject>> subjects =
      CaseRunner(supervisor, options, directory).introduce();
  if (!subjects)
    return subjects.error();
  if (told != nullptr)
    *told = *subjects;
  return select_cases(options, *subjects);
}

Result<Report> run_subject_suite(launch::Supervisor& supervisor, const SuiteOptions& options,
                                 history::RunDirectory& directory, const SuiteProgress& progress) {
  std::vector<Subject> subjects;
  const Result<std::vector<Case>> cases = select_cases(supervisor, options, directory, &subjects);
  if (!cases)
    return cases.error();
  if (progress.begun)
    progress.begun(*cases, subjects);
  return run_all(supervisor, options, *cases, directory, progress);
}

Result<CaseReport> judge_played(const Case& cell, const std::string& directory,
                                std::map<std::string, std::string>& versions) {
  const Result<Run> run = history::open_run(directory);
  if (!run)
    return run.error();
  Case judged = cell;
  judged.expected_site = run->plan.expected_site;
  return report_on(judged, *run, directory, versions);
}

Result<Report> judge_saved(const std::string& directory) {
  const Result<Run> run = history::open_run(directory);
  if (!run)
    return run.error();
  Report report;
  report.run = run->plan.id;
  report.command = run->plan.command;
  report.versions = run->plan.versions;
  for (const Acted& acted : run->acted) {
    if (acted.action == "interrupted")
      report.reason = acted.reason;
  }
  std::vector<std::string> ids = run->plan.cases;
  if (!run->plan.case_id.empty())
    ids.push_back(run->plan.case_id);
  const std::vector<Case> all = every_case(run->plan.seed);
  for (const std::string& id : ids) {
    const bool whole = id == run->plan.case_id;
    const std::string path = whole ? directory : history::case_path(directory, id);
    const auto known =
        std::find_if(all.begin(), all.end(), [&](const Case& cell) { return cell.id == id; });
    if (known != all.end() && !known->not_applicable.empty()) {
      report.cases.push_back(report_of(*known));
      continue;
    }
    if (const std::string why = run->plan.declared(kSkipped + id); !why.empty()) {
      CaseReport& added = report.cases.emplace_back();
      added.id = id;
      added.outcome = Outcome::kSkipped;
      added.reason = why;
      continue;
    }
    if (!std::filesystem::exists(path))
      continue;  // Interrupted before it.
    Result<CaseReport> result = judge_saved_case(path, report.versions);
    if (!result)
      return result.error();
    report.cases.push_back(std::move(*result));
  }
  conclude(report);
  return report;
}

}  // namespace lockstep
