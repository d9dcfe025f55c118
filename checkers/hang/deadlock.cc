#include "checkers/hang/deadlock.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "checkers/blame/attribution.h"
#include "checkers/hang/collective_timeout.h"
#include "checkers/hang/cross_group_order.h"
#include "checkers/hang/knots.h"
#include "checkers/hang/stall.h"
#include "checkers/hang/wait_for_graph.h"
#include "harness/model/batch_plan.h"
#include "harness/model/call_site.h"
#include "harness/model/coverage.h"
#include "harness/model/failure.h"
#include "harness/model/matching.h"
#include "harness/model/ranks_by_text.h"

namespace lockstep::checkers {
namespace {

constexpr std::size_t kLinesMax = 12;
constexpr std::size_t kPlacesMax = 3;  // Of a headline.
/// A proven deadlock is let stand this long for ranks that still move: where they come to rest
/// tells who is at fault.
constexpr std::uint64_t kOthersMayTakeNs = 5'000'000'000;

class Explainer {
 public:
  Explainer(const Run& run, const WaitForGraph& graph, const RankSet& stuck)
      : run_(run),
        graph_(graph),
        stuck_(stuck),
        knots_(knots_of(graph.waits_of(stuck))),
        parting_(parting(run, graph, knots_)) {}

  [[nodiscard]] bool empty() const { return root() == nullptr; }

  [[nodiscard]] Finding finding() const {
    const Knot& knot = *root();
    Finding finding;
    finding.code = code_of(knot);
    if (finding.code == Code::kP2pUnmatched || finding.code == Code::kUnevenBatches)
      finding.also.push_back(Code::kAbsentRank);
    finding.group = knot.group->label();
    finding.op = std::string(history::name_of(knot.call->op));
    finding.seq = knot.call->seq;
    finding.at_ns = knot.since_ns;
    const Attribution blame = attribute(knot);
    finding.culprits = blame.culprits;
    finding.confidence = blame.confidence;
    finding.affected = stuck_.minus(blame.culprits);
    finding.headline = headline(knot, finding.code);
    finding.cause = cause(finding);
    add_sites(finding, knot);
    add_ends_of_threads(finding);
    add_evidence(finding);
    add_ruled_out(finding);
    return finding;
  }

 private:
  [[nodiscard]] std::string cause(const Finding& finding) const {
    if (finding.code == Code::kUnevenBatches)
      return "the call that the others wait in comes with a batch that the ranks without do not "
             "have";
    if (finding.code == Code::kWaitCycle && parting_.member != nullptr &&
        finding.culprits == parting_.blame.culprits)
      return parting_.how;
    return "none of the ranks that wait can go on without the ones that owe, and those never will";
  }

  [[nodiscard]] bool in_a_call(Rank rank) const {
    return std::any_of(knots_.begin(), knots_.end(),
                       [&](const Knot& k) { return k.waiting.contains(rank); });
  }

  [[nodiscard]] bool waits_in_new_group(const RankSet& ranks) const {
    return std::any_of(graph_.states().begin(), graph_.states().end(),
                       [&](const ProcessState& state) {
                         return ranks.contains(state.rank) && state.makes_a_group();
                       });
  }

  /// Where the knot is tied: at an operation that is owed by somebody who waits in none; else at
  /// the first.
  [[nodiscard]] const Knot* root() const {
    for (const Knot& knot : knots_) {
      if (std::any_of(knot.absent.begin(), knot.absent.end(),
                      [&](Rank r) { return !in_a_call(r); }))
        return &knot;
    }
    for (const Knot& knot : knots_) {
      if (!knot.absent.empty() && knot.absent == parting_.blame.culprits)
        return &knot;
    }
    for (const Knot& knot : knots_) {
      if (!knot.absent.empty() || !knot.incompatible.empty())
        return &knot;
    }
    for (const Knot& knot : knots_) {
      if (!knot.broken.empty())
        return &knot;
    }
    return nullptr;
  }

  [[nodiscard]] Code code_of(const Knot& knot) const {
    const bool by_an_outsider =
        std::any_of(knot.absent.begin(), knot.absent.end(), [&](Rank r) { return !in_a_call(r); });
    if (knot.absent.empty() && knot.incompatible.empty())
      return Code::kEveryoneInside;
    if (!by_an_outsider)
      return Code::kWaitCycle;
    if (history::is_point_to_point(knot.call->op))
      return Code::kP2pUnmatched;
    return ran_out(run_, *knot.group, knot.waiting, knot.absent) ? Code::kUnevenBatches
                                                                 : Code::kAbsentRank;
  }

  [[nodiscard]] Attribution attribute(const Knot& knot) const {
    RankSet gone;
    for (const Knot& any : knots_) {
      for (const RankSet& owing : {any.absent, any.broken}) {
        for (const Rank rank : owing) {
          if (graph_.gone().contains(rank))
            gone.insert(rank);
        }
      }
    }
    if (!gone.empty())
      return {gone, Confidence::kCertain};
    RankSet lost_a_thread;
    for (const Rank rank : knot.absent) {
      if (end_of_a_thread(rank) != nullptr)
        lost_a_thread.insert(rank);
    }
    if (!lost_a_thread.empty())
      return {lost_a_thread, Confidence::kCertain};
    if (code_of(knot) == Code::kUnevenBatches)
      return {knot.absent, Confidence::kCertain};
    if (code_of(knot) == Code::kWaitCycle)
      return parting_.blame;
    if (history::is_point_to_point(knot.call->op) ||
        waits_in_new_group(knot.absent))  // Who of the others should be there does not show.
      return {};
    RankSet inside;  // Those who issued it and wait elsewhere are no absentees either.
    for (const Member& member : knot.group->members) {
      const Collective* theirs = member.at(knot.call->seq);
      if (theirs != nullptr && agree(*knot.call, *theirs))
        inside.insert(member.rank);
    }
    return blame_minority(*knot.group, {inside, knot.absent},
                          known_before(*knot.group, knot.call->seq));
  }

  /// What ended a thread of a rank that waits for its own threads for ever.
  [[nodiscard]] const Raised* end_of_a_thread(Rank rank) const {
    const ProcessState* const state = graph_.state(rank);
    if (state == nullptr || !state->waits_for_itself())
      return nullptr;
    return lockstep::end_of_a_thread(run_, state->process->pid, graph_.cutoff_ns());
  }

  void add_ends_of_threads(Finding& finding) const {
    for (const Rank rank : finding.culprits) {
      if (const Raised* const raised = end_of_a_thread(rank))
        tell_end_of_a_thread(finding, rank, *raised);
    }
  }

  [[nodiscard]] std::string headline(const Knot& knot, Code code) const {
    const std::string where = knot.group->label(*knot.call);
    if (code == Code::kWaitCycle && stuck_.size() == 1)
      return fmt::format("{} waits for itself in {}", words(stuck_), where);
    if (code == Code::kWaitCycle)
      return fmt::format("{} wait for each other in a circle: {}", words(stuck_), who_is_where());
    if (code == Code::kEveryoneInside)
      return fmt::format("{} cannot finish: it broke on {}; {} {} in it", where, words(knot.broken),
                         words(knot.waiting), knot.waiting.size() == 1 ? "waits" : "wait");
    if (code == Code::kP2pUnmatched)
      return fmt::format("{} waits in {}, and {} never comes to it", words(knot.waiting), where,
                         words(knot.absent));
    if (code == Code::kUnevenBatches)
      return fmt::format("{}; {} {} in {}", who_ran_out(run_.plan, knot.absent),
                         words(knot.waiting), knot.waiting.size() == 1 ? "waits" : "wait", where);
    const char* have = knot.absent.size() == 1 ? "has" : "have";
    return fmt::format("{} {} not entered {}; {} {} in it", words(knot.absent), have, where,
                       words(knot.waiting), knot.waiting.size() == 1 ? "waits" : "wait");
  }

  /// "rank 0 in barrier dp#5, ranks 1,2 in all_reduce dp#5"
  [[nodiscard]] std::string who_is_where() const {
    RanksByText places;
    for (const ProcessState& state : graph_.states()) {
      for (const Wait& wait : state.waits) {
        if (!stuck_.contains(state.rank) || wait.calls.empty())
          continue;
        const GroupView* group = graph_.group_of(state, *wait.calls.front());
        if (group != nullptr)
          add_rank(places, group->label(*wait.calls.front()), state.rank);
      }
    }
    std::string text;
    for (std::size_t i = 0; i < places.size() && i < kPlacesMax; ++i)
      text +=
          fmt::format("{}{} in {}", i == 0 ? "" : ", ", words(places[i].second), places[i].first);
    return text + (places.size() > kPlacesMax ? ", ..." : "");
  }

  /// The line of the call that it waits for, or else where it is.
  [[nodiscard]] std::optional<SiteRef> where_it_waits(const ProcessState& state,
                                                      const char* role) const {
    for (const Wait& wait : state.waits) {
      if (!wait.calls.empty() && stuck_.contains(state.rank))
        return site_of(*state.process, *wait.calls.front(), role);
    }
    return whereabouts(state, graph_.cutoff_ns(), role);
  }

  void add_sites(Finding& finding, const Knot& knot) const {
    const bool parted = finding.code == Code::kWaitCycle && parting_.member != nullptr &&
                        finding.culprits == parting_.blame.culprits;
    if (const auto site = parted ? site_of(*parting_.member->process, *parting_.instead, "culprit")
                                 : std::nullopt)
      finding.sites.push_back(*site);
    for (const Rank rank : parted ? RankSet{} : knot.absent) {
      const ProcessState* absent = graph_.state(rank);
      const char* role = finding.culprits.contains(rank) ? "culprit" : "peer";
      if (auto site = absent == nullptr ? std::nullopt : where_it_waits(*absent, role)) {
        finding.sites.push_back(*site);
        break;
      }
    }
    const ProcessState* waiter = graph_.state(*knot.waiting.begin());
    if (waiter == nullptr)
      return;
    if (auto site = site_of(*waiter->process, *knot.call, "peer"))
      finding.sites.push_back(*site);
  }

  /// What each rank is doing, equal ranks together.
  void add_evidence(Finding& finding) const {
    RanksByText lines;
    for (const ProcessState& state : graph_.states()) {
      if (graph_.gone().contains(state.rank)) {
        add_rank(lines, "has ended", state.rank);
        continue;
      }
      for (const Wait& wait : state.waits)
        add_rank(lines, describe_wait(state, wait), state.rank);
      if (state.waits.empty() && !state.not_closed.empty())
        add_rank(lines, state.not_closed, state.rank);
    }
    for (std::size_t i = 0; i < lines.size() && i < kLinesMax; ++i)
      finding.evidence.push_back(fmt::format("{}: {}", words(lines[i].second), lines[i].first));
  }

  /// What a set of processes that are all blocked in known waits leaves no room for.
  void add_ruled_out(Finding& finding) const {
    RankSet there, ended;
    for (const Rank rank : stuck_)
      (graph_.gone().contains(rank) ? ended : there).insert(rank);
    for (const Knot& knot : knots_) {
      for (const Rank rank : knot.absent) {
        if (graph_.gone().contains(rank))
          ended.insert(rank);
      }
    }
    finding.ruled_out.push_back(
        fmt::format("that {} only slow: no thread there ran between two looks",
                    there.size() == 1 ? words(there) + " is" : words(there) + " are"));
    finding.ruled_out.push_back(
        "that another thread of theirs makes the call: all that issue any wait, too");
    if (!ended.empty())
      finding.ruled_out.push_back(fmt::format("that {} may still come: {} ended", words(ended),
                                              ended.size() == 1 ? "it has" : "they have"));
  }

  [[nodiscard]] std::string describe_wait(const ProcessState& state, const Wait& wait) const {
    if (wait.next_request)
      return "has answered its last request and waits for the next, which is not sent before all "
             "have answered";
    if (wait.own_threads)
      return fmt::format("waits for a thread of its own{}, and none of them can go on",
                         at_site(whereabouts(state, graph_.cutoff_ns(), "peer")));
    if (wait.new_group)
      return fmt::format("in new_group{}, and waits there for others to make that group",
                         at_site(whereabouts(state, graph_.cutoff_ns(), "peer")));
    const Collective& call = *wait.calls.front();
    const GroupView* group = graph_.group_of(state, call);
    const std::string more =
        wait.calls.size() > 1 ? fmt::format(" and {} more", wait.calls.size() - 1) : "";
    const std::string label =
        group == nullptr ? std::string(history::name_of(call.op)) : group->label(call);
    return fmt::format("in {}{}{}", label, more, at_site(site_of(*state.process, call, "peer")));
  }

  const Run& run_;
  const WaitForGraph& graph_;
  const RankSet& stuck_;
  std::vector<Knot> knots_;
  Parting parting_;
};

bool acted(const Run& run, std::string_view action) {
  return std::any_of(run.acted.begin(), run.acted.end(),
                     [&](const Acted& act) { return act.action == action; });
}

/// The limit for stalls had passed, or somebody lost patience, who may have been wrong.
bool is_stalled(const Run& run, const Finding& stalled, std::uint64_t cutoff_ns) {
  const bool by_somebody = acted(run, "interrupted") || ended_from_outside_ns(run);
  return acted(run, "deadline") ||
         (by_somebody && waited_longer_than_ever(run, stalled, cutoff_ns));
}

// A machine that is slow must not become a finding of the suite; a rank that was told to stand
// still is one.
bool is_worth_telling(const Plan& plan) {
  const auto fault = plan.options.find("fault");
  return plan.scenario.empty() ||
         (fault != plan.options.end() && (fault->second == "sleep" || fault->second == "stop"));
}

std::optional<Finding> proven(const Run& run, const WaitForGraph& graph) {
  const RankSet stuck = graph.stuck();
  if (stuck.empty())
    return std::nullopt;
  const Explainer explainer(run, graph, stuck);
  if (explainer.empty())
    return std::nullopt;
  return explainer.finding();
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
  const auto finding = proven(run, graph);
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
  if (auto finding = proven(run, graph)) {
    verdict.outcome = Outcome::kFail;
    verdict.findings.push_back(std::move(*finding));
    return verdict;
  }
  if (!journal_is_whole(run)) {
    verdict.reason = why_open(run) + where_records_end(graph);
    return verdict;
  }
  if (run.live) {
    verdict.reason = "the run goes on";
    return verdict;
  }
  if (auto finding = given_up(run); finding && is_worth_telling(run.plan)) {
    verdict.outcome = Outcome::kFail;
    verdict.findings.push_back(std::move(*finding));
    return verdict;
  }
  if (graph.cutoff_ns() == kNeverNs) {  // It went to its end by itself: whoever waited was let go.
    verdict.outcome = Outcome::kPass;
    return verdict;
  }
  const std::optional<Finding> stalled = stall(run, graph);
  if (stalled && is_stalled(run, *stalled, graph.cutoff_ns()) && is_worth_telling(run.plan)) {
    verdict.outcome = Outcome::kFail;
    verdict.findings.push_back(*stalled);
    return verdict;
  }
  const std::vector<std::string> partly = graph.partly_seen();
  if (!partly.empty())
    verdict.reason = partly.front();
  else if (stalled)
    verdict.reason = fmt::format("not proven: {}", stalled->headline);
  else
    verdict.reason = "the run was ended before its end; no rank is known to have been stuck";
  return verdict;
}

}  // namespace lockstep::checkers
