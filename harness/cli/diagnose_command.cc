// `lockstep diagnose`: what the ranks of a job that somebody else started do now, and whom they
// wait for. It only looks.
#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <thread>
#include <utility>

#include "harness/cli/commands.h"
#include "harness/diagnose/find_ranks.h"
#include "harness/diagnose/look.h"
#include "harness/diagnose/merge.h"
#include "harness/diagnose/text.h"
#include "harness/launch/guard.h"
#include "harness/verdict/exit_codes.h"

namespace lockstep::cli {
namespace {

using Clock = std::chrono::steady_clock;

/// All ranks are another user's, say: then there is nothing to tell but why.
std::optional<Error> nothing_seen(const diagnose::Look& look) {
  const diagnose::Looked* refused = nullptr;
  for (const diagnose::Looked& one : look.ranks) {
    if (one.unseen.empty())
      return std::nullopt;
    if (refused == nullptr && !one.help.empty())
      refused = &one;
  }
  if (refused == nullptr)
    return std::nullopt;
  return Error{Error::Kind::kEnvironment, refused->unseen, refused->help};
}

bool all_ended(const diagnose::Diagnosis& diagnosis) {
  for (const diagnose::Standing& one : diagnosis.ranks) {
    if (one.stand != diagnose::Stand::kEnded)
      return false;
  }
  return true;
}

int status_of_outcome(Outcome outcome) {
  return status_of(outcome == Outcome::kFail   ? ExitCode::kFinding
                   : outcome == Outcome::kPass ? ExitCode::kNothingFound
                                               : ExitCode::kUndecided);
}

}  // namespace

int run_diagnose_command(const DiagnoseCommand& command) {
  if (!launch::proc_is_ours())
    return report_error({Error::Kind::kEnvironment,
                         "/proc shows the processes of another pid namespace",
                         "mount one of this"});
  const Clock::time_point begun = Clock::now();
  auto ranks =
      diagnose::find_ranks({.pids = command.pids, .name = command.name, .job = command.job});
  if (!ranks)
    return report_error(ranks.error());
  const std::string name = ranks->front().name_of_job();
  diagnose::Looker looker(std::move(*ranks),
                          diagnose::SleepNotes(diagnose::SleepNotes::usual_path()));
  for (Clock::time_point look_begun = begun;; look_begun = Clock::now()) {
    const diagnose::Look look = looker.look();
    if (const std::optional<Error> refused = nothing_seen(look))
      return report_error(*refused);
    const diagnose::Diagnosis diagnosis = diagnose::diagnosis_of(diagnose::standings_of(look));
    const std::chrono::duration<double> took = Clock::now() - look_begun;
    const std::string text = command.json
                                 ? diagnose::render_json(diagnosis, look, name, took.count())
                                 : diagnose::render_text(diagnosis, look, name, command.stacks,
                                                         human_options_here(command.output, ""));
    std::fwrite(text.data(), 1, text.size(), stdout);
    std::fflush(stdout);
    if (command.watch_s <= 0 || all_ended(diagnosis))
      return status_of_outcome(diagnosis.outcome);
    std::this_thread::sleep_for(std::chrono::duration<double>(command.watch_s));
    if (!command.json)
      fmt::print("\n");
  }
}

}  // namespace lockstep::cli
