#include "checkers/hang/deadlock.h"

#include <fmt/format.h>

#include <algorithm>

#include "checkers/hang/collective_timeout.h"
#include "checkers/hang/deadlock_finding.h"
#include "checkers/hang/stall.h"
#include "harness/model/coverage.h"
#include "harness/model/ranks_by_text.h"

namespace lockstep::checkers {
namespace {

/// A proven deadlock is let stand this long for ranks that still move: where they come to rest
/// tells who is at fault.
constexpr std::uint64_t kOthersMayTakeNs = 5'000'000'000;

/// The limit for stalls had passed, or somebody lost patience, who may have been wrong.
bool is_stalled(const Run& run, const Finding& stalled, std::uint64_t cutoff_ns) {
  const bool by_somebody = was(run, "interrupted") || ended_from_outside_ns(run);
  return was(run, "deadline") || was(run, "deadlock") ||
         (by_somebody && waited_longer_than_ever(run, stalled, cutoff_ns));
}

// A machine that is slow must not become a finding of the suite; a rank that was told to stand
// still is one.
bool is_worth_telling(const Plan& plan) {
  const auto fault = plan.options.find("fault");
  return plan.scenario.empty() ||
         (fault != plan.options.end() && (fault->second == "sleep" || fault->second == "stop"));
}

/// Nobody is still on the way to where the others are stuck: what can be known of it is known.
bool all_settled(const WaitForGraph& graph) {
  const RankSet stuck = graph.stuck();
  return std::all_of(graph.states().begin(), graph.states().end(), [&](const ProcessState& state) {
    return stuck.contains(state.rank) || graph.gone().contains(state.rank);
  });
}

/// Since the last thing any stuck rank did.
bool have_waited_long(const Run& run, const WaitForGraph& graph) {
  std::uint64_t last_sample_ns = 0;
  for (const StateSample& sample : run.states)
    last_sample_ns = std::max(last_sample_ns, sample.at_ns);
  std::uint64_t last_issue_ns = 0;
  const RankSet stuck = graph.stuck();
  for (const ProcessState& state : graph.states()) {
    if (stuck.contains(state.rank) && !state.process->collectives.empty())
      last_issue_ns = std::max(last_issue_ns, state.process->collectives.back().issued_ns);
  }
  return last_sample_ns > last_issue_ns + kOthersMayTakeNs;
}

/// Whether anybody waited for ever is not known then; in what they were is.
std::string where_records_end(const WaitForGraph& graph) {
  RanksByText lines;
  for (const ProcessState& state : graph.states()) {
    if (state.process->collectives.empty())
      continue;
    const Collective& call =
        state.open.empty() ? state.process->collectives.back() : *state.open.front();
    if (const GroupView* const group = graph.group_of(state, call))
      add_rank(lines, (state.open.empty() ? "after " : "in ") + group->label(call), state.rank);
  }
  std::string text;
  for (const auto& [where, ranks] : lines)
    text += fmt::format("{} {} {}", text.empty() ? "; at the end of what is known" : ",",
                        words(ranks), where);
  return text;
}

}  // namespace

std::optional<std::string> certain_deadlock(const Run& run) {
  const WaitForGraph graph(run);
  const auto finding = proven_deadlock(run, graph);
  if (!finding || !(all_settled(graph) || have_waited_long(run, graph)))
    return std::nullopt;
  return finding->headline;
}

Verdict Deadlock::check(const Job& job) const {
  const Run& run = job.run();
  Verdict verdict{.name = std::string(name())};
  const WaitForGraph graph(job);
  verdict.examined["processes"] = graph.states().size();
  if (graph.states().empty()) {
    verdict.reason = "no rank has a history";
    return verdict;
  }
  if (auto finding = proven_deadlock(run, graph))
    return verdict.fail(std::move(*finding));
  if (!journal_is_whole(run)) {
    Reason why = why_open(run);
    why.text += where_records_end(graph);
    return verdict.because(std::move(why));
  }
  if (run.live) {
    verdict.reason = "the run goes on";
    return verdict;
  }
  if (auto finding = given_up(run); finding && is_worth_telling(run.plan))
    return verdict.fail(std::move(*finding));
  if (graph.cutoff_ns() == kNeverNs) {  // It went to its end by itself: whoever waited was let go.
    verdict.outcome = Outcome::kPass;
    return verdict;
  }
  const std::optional<Finding> stalled = stall(run, graph);
  if (stalled && is_stalled(run, *stalled, graph.cutoff_ns()) && is_worth_telling(run.plan))
    return verdict.fail(*stalled);
  if (Reason partly = graph.partly_seen(); partly.lacks)
    verdict.because(std::move(partly));
  else if (stalled)
    verdict.reason = fmt::format("not proven: {}", stalled->headline);
  else
    verdict.reason = "the run was ended before its end; no rank is known to have been stuck";
  return verdict;
}

}  // namespace lockstep::checkers
