#include "checkers/hang/deadlock_finding.h"

#include <fmt/format.h>

#include <algorithm>

#include "checkers/blame/attribution.h"
#include "checkers/hang/blocked_calls.h"
#include "checkers/hang/cross_group_order.h"
#include "harness/model/batch_plan.h"
#include "harness/model/call_site.h"
#include "harness/model/failure.h"
#include "harness/model/matching.h"
#include "harness/model/ranks_by_text.h"

namespace lockstep::checkers {
namespace {

constexpr std::size_t kLinesMax = 12;
constexpr std::size_t kPlacesMax = 3;  // Of a headline.

class Explainer {
 public:
  Explainer(const Run& run, const WaitForGraph& graph, const RankSet& stuck)
      : run_(run),
        graph_(graph),
        stuck_(stuck),
        blocked_(blocked_calls_of(graph.waits_of(stuck))),
        parting_(parting(run, graph, blocked_)) {}

  [[nodiscard]] bool empty() const { return root() == nullptr; }

  [[nodiscard]] Finding finding() const {
    const BlockedCall& blocked = *root();
    Finding finding;
    finding.code = code_of(blocked);
    if (finding.code == Code::kP2pUnmatched || finding.code == Code::kUnevenBatches)
      finding.also.push_back(Code::kAbsentRank);
    finding.group = blocked.group->label();
    finding.op = std::string(history::name_of(blocked.call->op));
    finding.seq = blocked.call->seq;
    finding.at_ns = blocked.since_ns;
    const Attribution blame = attribute(blocked);
    finding.culprits = blame.culprits;
    finding.confidence = blame.confidence;
    finding.affected = stuck_.minus(blame.culprits);
    finding.headline = headline(blocked, finding.code);
    finding.cause = cause(finding);
    add_sites(finding, blocked);
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
    return std::any_of(blocked_.begin(), blocked_.end(),
                       [&](const BlockedCall& k) { return k.waiting.contains(rank); });
  }

  [[nodiscard]] bool waits_in_new_group(const RankSet& ranks) const {
    return std::any_of(graph_.states().begin(), graph_.states().end(),
                       [&](const ProcessState& state) {
                         return ranks.contains(state.rank) && state.one_is(Doing::kInNewGroup);
                       });
  }

  /// Where the deadlock began: at an operation that is owed by somebody who waits in none; else at
  /// the first.
  [[nodiscard]] const BlockedCall* root() const {
    for (const BlockedCall& blocked : blocked_) {
      if (std::any_of(blocked.absent.begin(), blocked.absent.end(),
                      [&](Rank r) { return !in_a_call(r); }))
        return &blocked;
    }
    for (const BlockedCall& blocked : blocked_) {
      if (!blocked.absent.empty() && blocked.absent == parting_.blame.culprits)
        return &blocked;
    }
    for (const BlockedCall& blocked : blocked_) {
      if (!blocked.absent.empty() || !blocked.incompatible.empty())
        return &blocked;
    }
    for (const BlockedCall& blocked : blocked_) {
      if (!blocked.broken.empty())
        return &blocked;
    }
    return nullptr;
  }

  [[nodiscard]] Code code_of(const BlockedCall& blocked) const {
    const bool by_an_outsider = std::any_of(blocked.absent.begin(), blocked.absent.end(),
                                            [&](Rank r) { return !in_a_call(r); });
    if (blocked.absent.empty() && blocked.incompatible.empty())
      return Code::kEveryoneInside;
    if (!by_an_outsider)
      return Code::kWaitCycle;
    if (history::is_point_to_point(blocked.call->op))
      return Code::kP2pUnmatched;
    return ran_out(run_, *blocked.group, blocked.waiting, blocked.absent) ? Code::kUnevenBatches
                                                                          : Code::kAbsentRank;
  }

  [[nodiscard]] Attribution attribute(const BlockedCall& blocked) const {
    RankSet gone;
    for (const BlockedCall& any : blocked_) {
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
    for (const Rank rank : blocked.absent) {
      if (end_of_a_thread(rank) != nullptr)
        lost_a_thread.insert(rank);
    }
    if (!lost_a_thread.empty())
      return {lost_a_thread, Confidence::kCertain};
    if (code_of(blocked) == Code::kUnevenBatches)
      return {blocked.absent, Confidence::kCertain};
    if (code_of(blocked) == Code::kWaitCycle)
      return parting_.blame;
    if (history::is_point_to_point(blocked.call->op) ||
        waits_in_new_group(blocked.absent))  // Who of the others should be there does not show.
      return {};
    RankSet inside;  // Those who issued it and wait elsewhere are no absentees either.
    for (const Member& member : blocked.group->members) {
      const Collective* theirs = member.at(blocked.call->seq);
      if (theirs != nullptr && agree(*blocked.call, *theirs))
        inside.insert(member.rank);
    }
    return blame_minority(*blocked.group, {inside, blocked.absent},
                          known_before(*blocked.group, blocked.call->seq));
  }

  /// What ended a thread of a rank that waits for its own threads for ever.
  [[nodiscard]] const Raised* end_of_a_thread(Rank rank) const {
    const ProcessState* const state = graph_.state(rank);
    if (state == nullptr || !state->one_is(Doing::kOwnThread))
      return nullptr;
    return lockstep::end_of_a_thread(run_, state->process->pid, graph_.cutoff_ns());
  }

  void add_ends_of_threads(Finding& finding) const {
    for (const Rank rank : finding.culprits) {
      if (const Raised* const raised = end_of_a_thread(rank))
        tell_end_of_a_thread(finding, rank, *raised);
    }
  }

  [[nodiscard]] std::string headline(const BlockedCall& blocked, Code code) const {
    const std::string where = blocked.group->label(*blocked.call);
    if (code == Code::kWaitCycle && stuck_.size() == 1)
      return fmt::format("{} waits for itself in {}", words(stuck_), where);
    if (code == Code::kWaitCycle)
      return fmt::format("{} wait for each other in a circle: {}", words(stuck_), who_is_where());
    if (code == Code::kEveryoneInside)
      return fmt::format("{} cannot finish: it broke on {}; {} {} in it", where,
                         words(blocked.broken), words(blocked.waiting),
                         blocked.waiting.size() == 1 ? "waits" : "wait");
    if (code == Code::kP2pUnmatched)
      return fmt::format("{} waits in {}, and {} never comes to it", words(blocked.waiting), where,
                         words(blocked.absent));
    if (code == Code::kUnevenBatches)
      return fmt::format("{}; {} {} in {}", who_ran_out(run_.plan, blocked.absent),
                         words(blocked.waiting), blocked.waiting.size() == 1 ? "waits" : "wait",
                         where);
    const char* have = blocked.absent.size() == 1 ? "has" : "have";
    return fmt::format("{} {} not entered {}; {} {} in it", words(blocked.absent), have, where,
                       words(blocked.waiting), blocked.waiting.size() == 1 ? "waits" : "wait");
  }

  /// "rank 0 in barrier dp#5, ranks 1,2 in all_reduce dp#5"
  [[nodiscard]] std::string who_is_where() const {
    RanksByText places;
    for (const ProcessState& state : graph_.states()) {
      for (const Activity& wait : state.waits) {
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
    for (const Activity& wait : state.waits) {
      if (!wait.calls.empty() && stuck_.contains(state.rank))
        return site_of(*state.process, *wait.calls.front(), role);
    }
    return whereabouts(state, graph_.cutoff_ns(), role);
  }

  void add_sites(Finding& finding, const BlockedCall& blocked) const {
    const bool parted = finding.code == Code::kWaitCycle && parting_.member != nullptr &&
                        finding.culprits == parting_.blame.culprits;
    finding.add(parted ? site_of(*parting_.member->process, *parting_.instead, "culprit")
                       : std::nullopt);
    for (const Rank rank : parted ? RankSet{} : blocked.absent) {
      const ProcessState* absent = graph_.state(rank);
      const char* role = finding.culprits.contains(rank) ? "culprit" : "peer";
      if (auto site = absent == nullptr ? std::nullopt : where_it_waits(*absent, role)) {
        finding.sites.push_back(*site);
        break;
      }
    }
    const ProcessState* waiter = graph_.state(*blocked.waiting.begin());
    if (waiter == nullptr)
      return;
    finding.add(site_of(*waiter->process, *blocked.call, "peer"));
  }

  /// What each rank is doing, equal ranks together.
  void add_evidence(Finding& finding) const {
    EvidenceOfRanks lines;
    for (const ProcessState& state : graph_.states()) {
      if (graph_.gone().contains(state.rank)) {
        lines.add(evidence_of(EvidenceKind::kEnd, {state.rank}, "has ended"));
        continue;
      }
      for (const Activity& wait : state.waits)
        lines.add(describe_wait(state, wait));
      if (state.waits.empty() && !state.not_quiescent.empty())
        lines.add(evidence_of(EvidenceKind::kProcess, {state.rank}, "{}", state.not_quiescent));
    }
    lines.tell(finding, kLinesMax);
  }

  /// What a set of processes that are all blocked in known waits leaves no room for.
  void add_ruled_out(Finding& finding) const {
    RankSet there, ended;
    for (const Rank rank : stuck_)
      (graph_.gone().contains(rank) ? ended : there).insert(rank);
    for (const BlockedCall& blocked : blocked_) {
      for (const Rank rank : blocked.absent) {
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

  [[nodiscard]] Evidence describe_wait(const ProcessState& state, const Activity& wait) const {
    Evidence line{.kind = EvidenceKind::kWait, .ranks = {state.rank}};
    const auto here = [&] { return whereabouts(state, graph_.cutoff_ns(), "peer"); };
    if (wait.doing == Doing::kNextRequest) {
      line.text =
          "has answered its last request and waits for the next, which is not sent before all "
          "have answered";
    } else if (wait.doing == Doing::kOwnThread) {
      line.text = "waits for a thread of its own";
      line.at(here()).text += ", and none of them can go on";
    } else if (wait.doing == Doing::kInNewGroup) {
      line.text = "in new_group";
      line.at(here()).text += ", and waits there for others to make that group";
    } else {
      const Collective& call = *wait.calls.front();
      const GroupView* const group = graph_.group_of(state, call);
      line.call = group == nullptr ? std::nullopt : group->place(call);
      line.text =
          "in " + (group == nullptr ? std::string(history::name_of(call.op)) : group->label(call));
      if (wait.calls.size() > 1)
        line.text += fmt::format(" and {} more", wait.calls.size() - 1);
      line.at(site_of(*state.process, call, "peer"));
    }
    return line;
  }

  const Run& run_;
  const WaitForGraph& graph_;
  const RankSet& stuck_;
  std::vector<BlockedCall> blocked_;
  Parting parting_;
};

}  // namespace

std::optional<Finding> proven_deadlock(const Run& run, const WaitForGraph& graph) {
  const RankSet stuck = graph.stuck();
  if (stuck.empty())
    return std::nullopt;
  const Explainer explainer(run, graph, stuck);
  if (explainer.empty())
    return std::nullopt;
  return explainer.finding();
}

}  // namespace lockstep::checkers
