#include "scenarios/case_runner.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>

#include "checkers/hang/deadlock.h"
#include "harness/base/check.h"
#include "harness/base/clock.h"
#include "harness/base/version.h"
#include "harness/history/follower.h"
#include "harness/history/journal.h"
#include "harness/symbols/closed_run.h"
#include "scenarios/conversation.h"

namespace lockstep {
namespace {

launch::WarmOptions warm(const std::string& program, const std::string& log) {
  launch::WarmOptions options;
  options.command = {program, "--warm"};
  options.log_file = log;
  return options;
}

// "file:line" of the comment "SITE: marker", found in the sources themselves: no line number is
// kept anywhere. Named as debug information names it, relative to the root. Empty if the sources
// are not here.
std::string marked_line(const std::string& marker) {
  namespace fs = std::filesystem;
  const std::string comment = "// SITE: " + marker;
  std::error_code failed;
  for (const char* folder : {"fixtures/mutants", "fixtures/implementations"}) {
    for (const auto& entry :
         fs::directory_iterator(fs::path(LOCKSTEP_SOURCE_DIR) / folder, failed)) {
      std::ifstream file(entry.path());
      std::string text;
      for (std::int32_t line = 1; std::getline(file, text); ++line) {
        if (text.size() > comment.size() &&
            text.compare(text.size() - comment.size(), comment.size(), comment) == 0)
          return fmt::format("{}/{}:{}", folder, entry.path().filename().string(), line);
      }
    }
  }
  return "";
}

Plan plan_of(const Case& cell, const std::string& run_id) {
  Plan plan;
  plan.id = run_id;
  plan.command = {"lockstep",         "suite",
                  "--seed",           std::to_string(cell.seed),
                  "--implementation", cell.implementation};
  plan.world_size = cell.world_size;
  plan.scenario = cell.scenario;
  plan.implementation = cell.implementation;
  plan.dtype = cell.dtype;
  plan.device = cell.device;
  plan.mutant = cell.mutant == nullptr ? "" : std::string(cell.mutant->name);
  plan.seed = cell.seed;
  plan.options = cell.options;
  plan.case_id = cell.id;
  plan.expected_marks = cell.expected_marks;
  plan.required_checks = cell.required_checks;
  plan.required = cell.required;
  if (!cell.named_by.empty())
    plan.contract["named_by"] = cell.named_by;
  if (cell.tried)
    plan.contract["not_declared"] = cell.not_declared;
  if (cell.mutant != nullptr && !cell.mutant->site.empty())
    plan.expected_site = marked_line(std::string(cell.mutant->site));
  plan.versions["lockstep"] = kVersion;
  return plan;
}

const Scenario& scenario_of(const Case& cell) {
  for (const auto& scenario : all_scenarios()) {
    if (scenario->name() == cell.scenario)
      return *scenario;
  }
  LS_CHECK(false && "a case of a scenario that does not exist");
}

/// What programs of a user find in their environment under a launcher.
std::map<std::string, std::string> rank_environment(const Case& cell, Rank rank) {
  return {{"RANK", std::to_string(rank.value)},
          {"LOCAL_RANK", std::to_string(rank.value)},
          {"WORLD_SIZE", std::to_string(cell.world_size)},
          {"LOCAL_WORLD_SIZE", std::to_string(cell.world_size)},
          {"MASTER_ADDR", "127.0.0.1"}};
}

std::vector<launch::HostSpec> specs_of(const Case& cell, const std::string& live,
                                       launch::WarmParent& ranks, launch::WarmParent* reference) {
  std::vector<launch::HostSpec> specs;
  for (const Rank rank : RankSet::all(cell.world_size)) {
    launch::HostSpec& spec =
        specs.emplace_back(launch::HostSpec{.role = Role::kRank, .rank = rank, .warm = &ranks});
    if (cell.of_subject)
      spec.environment = rank_environment(cell, rank);
    spec.environment["LOCKSTEP_HISTORY"] = live;
  }
  launch::HostSpec& spec = specs.emplace_back(launch::HostSpec{
      .role = Role::kReference, .rank = std::nullopt, .warm = reference, .environment = {}});
  if (reference == nullptr) {
    spec.warm = &ranks;  // One start of torch for all.
    spec.environment = {{"LOCKSTEP_ROLE", "reference"}};
  }
  return specs;
}

// Hosts that could not be started leave the case undecided; what would keep every case from running
// is an error.
Result<void> not_started(history::JournalWriter& journal, const Error& why) {
  if (why.kind == Error::Kind::kEnvironment || why.kind == Error::Kind::kUsage ||
      why.kind == Error::Kind::kInterrupted)
    return why;
  (void)journal.append(Acted{.at_ns = now_ns(), .action = "ended-early", .reason = why.what});
  return journal.close();
}

}  // namespace

CaseRunner::CaseRunner(launch::Supervisor& supervisor, const SuiteOptions& options,
                       history::RunDirectory& suite)
    : supervisor_(supervisor),
      options_(options),
      suite_(suite),
      ranks_(supervisor, options.subject.name.empty()
                             ? warm(options.rank_host, suite.path() + "/logs/warm-rank.log")
                             : warm_options(options.subject, suite.path() + "/logs/warm-rank.log")),
      reference_(supervisor,
                 warm(options.reference_host, suite.path() + "/logs/warm-reference.log")) {}

Result<std::vector<Subject>> CaseRunner::introduce() {
  const std::string logs = suite_.path() + "/logs";
  if (auto known = introduced(logs))  // A lane: the suite has asked.
    return std::move(*known);
  return lockstep::introduce(supervisor_, ranks_, logs);
}

Result<void> CaseRunner::talk(const Case& cell, history::RunDirectory& directory, Plan& plan) {
  Result<history::JournalWriter> journal = history::JournalWriter::create(directory.journal());
  if (!journal)
    return journal.error();
  const std::filesystem::path scratch = directory.path() + "/scratch";
  const auto gone_at_end = supervisor_.remove_at_end(scratch.string());
  if (!gone_at_end)
    return gone_at_end.error();
  std::error_code failed;
  std::filesystem::create_directory(scratch, failed);
  if (failed)
    return Error{Error::Kind::kIo,
                 fmt::format("cannot make {}: {}", scratch.string(), failed.message()), ""};

  history::Follower follower(directory.live(), directory.journal(), plan);
  launch::HostJobOptions job_options;
  job_options.logs_directory = directory.path() + "/logs";
  job_options.journal = &*journal;
  job_options.follower = &follower;
  job_options.all_threads = cell.of_subject;  // Any thread of an interpreter may go on.
  job_options.stop_when = [](const Run& live) { return checkers::certain_deadlock(live); };
  auto job =
      launch::HostJob::start(supervisor_, job_options,
                             specs_of(cell, directory.live(), ranks_,
                                      options_.reference_host.empty() ? nullptr : &reference_));
  if (!job)
    return not_started(*journal, job.error());
  Conversation conversation(
      **job, *journal, plan, cell, {directory.path(), scratch},
      std::chrono::milliseconds(static_cast<std::int64_t>(
          (cell.tried ? options_.request_limit_s / 4 : options_.request_limit_s) * 1000)));
  std::string ended_early;
  if (auto done = scenario_of(cell).converse(conversation, cell); !done) {
    ended_early = done.error().what;
    // In the history, so that judging it again says the same.
    (void)journal->append(Acted{.at_ns = now_ns(), .action = "ended-early", .reason = ended_early});
  }
  (*job)->end(ended_early.empty() ? "the case is over" : ended_early);
  return journal->close();
}

Result<void> CaseRunner::play(const Case& cell) {
  Result<history::RunDirectory> directory = suite_.create_case(cell.id);
  if (!directory)
    return directory.error();
  Plan plan = plan_of(cell, suite_.id());
  if (auto written = directory->write_plan(plan); !written)
    return written.error();
  auto rescue = supervisor_.rescue_at_death(directory->live(), directory->history());
  if (!rescue)
    return rescue.error();

  if (auto talked = talk(cell, *directory, plan); !talked)
    return talked.error();
  if (auto written = directory->write_plan(plan); !written)  // With what the hosts declared.
    return written.error();
  const Result<Run> closed = symbols::close_and_open(*directory, resolver_);
  return closed ? Result<void>() : closed.error();
}

Result<CaseReport> CaseRunner::run(const Case& cell) {
  const std::uint64_t begun_ns = now_ns();
  if (auto played = play(cell); !played)
    return played.error();
  std::map<std::string, std::string> versions;
  auto report = judge_played(cell, history::case_path(suite_.path(), cell.id), versions);
  if (report)
    report->wall_s = static_cast<double>(now_ns() - begun_ns) / 1e9;
  return report;
}

}  // namespace lockstep
