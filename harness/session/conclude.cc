#include "harness/session/conclude.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "checkers/worlds.h"
#include "harness/history/rank_places.h"
#include "harness/model/call_site.h"
#include "harness/model/failure.h"
#include "harness/model/group_view.h"
#include "harness/session/last_ends.h"
#include "harness/verdict/exit_codes.h"

namespace lockstep::session {
namespace {

const Acted* act(const Run& run, std::string_view action) {
  const auto at = std::find_if(run.acted.begin(), run.acted.end(),
                               [&](const Acted& acted) { return acted.action == action; });
  return at == run.acted.end() ? nullptr : &*at;
}

/// Of the command: its own exception, or one that it passed on. "; it raised ValueError: x at
/// t.py:3"
std::string what_it_raised(const Run& run) {
  for (const Raised& raised : run.raised) {
    if (!raised.rank)
      return fmt::format("; it raised {}{}", first_line(raised.text),
                         at_site(site_of(Rank{}, raised.raised_at.frames, "raised")));
  }
  return "";
}

std::string who_was_killed(const Run& run) {
  const LauncherEnd* const killed = launcher_killed(run);
  return killed == nullptr ? "" : "; " + in_words(*killed);
}

/// A rank of this world that ended badly at last, or was ended by us although it had not been
/// interrupted: something must explain it. Empty if there is none.
std::string unexplained_rank(const Run& run) {
  for (const auto& [rank, end] : rank_ends(run)) {
    if (shell_status(*end) == 0 || was_meant(run, *end))
      continue;
    return end->our_signal
               ? fmt::format("rank {} was ended by lockstep ({})", rank.value, end->our_reason)
               : fmt::format("rank {} ended with status {} and nothing explains it", rank.value,
                             shell_status(*end));
  }
  return "";
}

/// A rank, or else the command that started them. What was found of a world, and be it a note,
/// explains how it ended.
std::string unexplained(const std::vector<World>& worlds,
                        const std::vector<checkers::Judgement>& judged) {
  for (std::size_t i = 0; i < worlds.size(); ++i) {
    std::string rank = judged[i].findings.empty() ? unexplained_rank(worlds[i].run) : "";
    if (!rank.empty())
      return worlds.size() == 1 ? rank : fmt::format("{}: {}", checkers::name_of(worlds, i), rank);
  }
  const Run& run = worlds.back().run;
  for (const ProcessEnd& end : run.ends) {
    if (history::is_command(run, end.pid) && !end.our_signal && shell_status(end) != 0)
      return fmt::format("the command ended with status {}, and no rank explains it{}{}",
                         shell_status(end), what_it_raised(run), who_was_killed(run));
  }
  return "";
}

/// The first required check that could not decide; empty if none.
std::string undecided_required(const Run& run, const std::vector<Verdict>& verdicts) {
  for (const Verdict& verdict : verdicts) {
    const auto& required = run.plan.required_checks;
    const bool asked = std::find(required.begin(), required.end(), verdict.name) != required.end();
    if (asked && (verdict.outcome == Outcome::kUndecided || verdict.outcome == Outcome::kSkipped))
      return fmt::format("{}: {}", verdict.name, verdict.reason);
  }
  return "";
}

bool has_group(const Run& run) {
  return std::any_of(run.processes.begin(), run.processes.end(),
                     [](const Process& process) { return !process.groups.empty(); });
}

/// What there was to judge, where no process group was seen.
std::string nothing_seen(const std::vector<World>& worlds, bool no_rank) {
  if (no_rank)
    return "no rank was seen, so nothing of one was judged";
  const bool seen = std::any_of(worlds.begin(), worlds.end(),
                                [](const World& world) { return has_group(world.run); });
  return seen ? "" : "no process group was seen, only how ranks ended was judged";
}

}  // namespace

void conclude(Report& report, const std::vector<World>& worlds,
              const std::vector<checkers::Judgement>& judged) {
  const auto say = [&](Outcome outcome, ExitCode code, std::string reason) {
    report.outcome = outcome;
    report.exit_status = status_of(code);
    report.reason = std::move(reason);
  };
  const bool found =
      std::any_of(report.findings.begin(), report.findings.end(),
                  [](const Finding& finding) { return finding.severity == Severity::kError; });
  const Run& run = worlds.back().run;
  // Of two worlds that cannot be told apart nobody has a rank that both have.
  const bool no_rank = worlds.size() == 1 && report.ranks.empty() &&
                       std::none_of(run.processes.begin(), run.processes.end(),
                                    [](const Process& process) { return process.beside; });
  report.unseen = report.findings.empty() ? nothing_seen(worlds, no_rank) : "";
  const std::string unsaid = unexplained(worlds, judged);
  const std::string required = undecided_required(run, report.checks);
  if (found)
    say(Outcome::kFail, ExitCode::kFinding, "");
  else if (const Acted* interrupted = act(run, "interrupted"))
    say(Outcome::kUndecided, ExitCode::kInterrupted,
        fmt::format("interrupted ({})", interrupted->reason));
  else if (no_rank && report.program_exit.value_or(0) != 0)
    say(Outcome::kUndecided, ExitCode::kNoRank,
        fmt::format("the command ended with status {}, and no process of it became a rank{}",
                    *report.program_exit, what_it_raised(run)));
  else if (!unsaid.empty() || !required.empty())
    say(Outcome::kUndecided, ExitCode::kUndecided, unsaid.empty() ? required : unsaid);
  else
    say(no_rank ? Outcome::kSkipped : Outcome::kPass, ExitCode::kNothingFound, "");
}

}  // namespace lockstep::session
