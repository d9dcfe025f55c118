#include "checkers/hang/stall.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <string_view>
#include <utility>

#include "checkers/blame/attribution.h"
#include "checkers/order/crossed_threads.h"
#include "harness/model/activity.h"
#include "harness/model/call_site.h"
#include "harness/model/failure.h"
#include "harness/model/ranks_by_text.h"
#include "harness/model/stack_patterns.h"

namespace lockstep::checkers {
namespace {

constexpr std::size_t kChildrenMax = 4;
constexpr std::uint64_t kTriesMin = 4;  // Of TCP, whose pauses double: for three seconds or more.
constexpr std::uint64_t kAskingNs = 5'000'000;  // Who sleeps more often asks for something.

/// Collectives go to its GPU, and where the host waits for that is not seen.
bool may_wait_for_device(const ProcessState& state) {
  const bool has_native =
      state.main_stack != nullptr &&
      std::any_of(state.main_stack->frames.begin(), state.main_stack->frames.end(),
                  [](const Frame& frame) { return !frame.is_python(); });
  return !has_native && std::any_of(state.open.begin(), state.open.end(), [](const auto* call) {
    return call->completion_unseen && !history::is_point_to_point(call->op);
  });
}

/// Of its data loader, or of a pool.
bool waits_for_workers(const StackSample* stack) {
  return stack != nullptr && (waits_for_a_task(*stack) || in_data_loader(stack->frames));
}

/// Between its last sample and one that is old enough. Who goes to sleep all the time asks somebody
/// for something, and that may be another rank's to give.
bool computes(const Run& run, const ProcessState& state, std::uint64_t cutoff_ns) {
  if (waits_for_others(state.main_stack) || may_wait_for_device(state))
    return false;
  const StateSample* const last = last_state(run, state.process->pid, cutoff_ns);
  const ThreadState* const now = last == nullptr ? nullptr : thread_in(*last, last->pid);
  const StateSample* before = nullptr;
  for (const StateSample& sample : run.states) {
    if (now != nullptr && sample.pid == last->pid && sample.at_ns + kStillNs <= last->at_ns)
      before = &sample;
  }
  const ThreadState* const then = before == nullptr ? nullptr : thread_in(*before, before->pid);
  if (then == nullptr)
    return false;
  const std::uint64_t ns = last->at_ns - before->at_ns;
  return now->cpu_ns - then->cpu_ns >= ns / 4 &&
         now->context_switches - then->context_switches <= ns / kAskingNs;
}

/// For a lock or a queue of its own, and none of its threads waits for somebody else.
bool waits_for_own_threads(const Run& run, const ProcessState& state, std::uint64_t cutoff_ns) {
  const StateSample* const last = last_state(run, state.process->pid, cutoff_ns);
  const ThreadState* const now = last == nullptr ? nullptr : thread_in(*last, last->pid);
  return now != nullptr && now->for_own_threads && state.open.empty() &&
         std::all_of(last->threads.begin(), last->threads.end(), [](const ThreadState& thread) {
           const KernelWait wait = kernel_wait(thread.wchan);
           return thread.state == 'R' || wait == KernelWait::kFutex || wait == KernelWait::kEpoll;
         });
}

class StalledCall {
 public:
  StalledCall(const Run& run, const WaitForGraph& graph, const ProcessState& waiter,
              const Collective& call, std::string_view when)
      : run_(run),
        when_(when),
        graph_(graph),
        waiter_(waiter),
        call_(call),
        group_(*graph.group_of(waiter, call)),
        owed_(graph.owing(waiter, call)) {
    for (const Member& member : group_.members) {
      if (!owed_.absent.contains(member.rank))
        waiting_.insert(member.rank);
    }
  }

  [[nodiscard]] bool is_one() const { return owed_.incompatible.empty(); }

  [[nodiscard]] Finding finding() const {
    const auto crossed = owed_.absent.empty() && threads_called_at_once()
                             ? crossed_threads(run_, group_, call_.seq)
                             : std::nullopt;
    if (crossed)
      return *crossed;
    Finding finding;
    finding.code = owed_.absent.empty() ? Code::kEveryoneInside : Code::kAbsentRank;
    finding.group = group_.label();
    finding.op = std::string(history::name_of(call_.op));
    finding.seq = call_.seq;
    finding.at_ns = call_.issued_ns;
    finding.confidence = Confidence::kLikely;
    finding.affected = waiting_;
    finding.headline =
        owed_.absent.empty()
            ? fmt::format("all ranks of {} were inside {} and it did not finish", group_.label(),
                          group_.label(call_))
            : fmt::format("{} had not entered {} {}; {} waited in it", words(owed_.absent),
                          group_.label(call_), when_, words(waiting_));
    const bool blamable = !owed_.absent.empty() && known_before(group_, call_.seq) &&
                          std::none_of(owed_.absent.begin(), owed_.absent.end(), [&](Rank rank) {
                            const ProcessState* const state = graph_.state(rank);
                            return state != nullptr && waits_for_others(state->main_stack);
                          });
    if (blamable)
      name_the_few_that_are_late(finding);
    if (blamable)
      name_what_it_is_stalled_on(finding);
    if (owed_.absent.empty()) {
      name_the_link(finding);
      name_who_is_stopped_inside(finding);
    }
    add_evidence(finding);
    finding.add(site_of(*waiter_.process, call_, "peer"));
    return finding;
  }

 private:
  /// What the record says of the order of a rank's calls may be wrong then.
  [[nodiscard]] bool threads_called_at_once() const {
    return std::any_of(group_.members.begin(), group_.members.end(), [&](const Member& member) {
      for (std::uint64_t seq = call_.seq > 2 ? call_.seq - 2 : 0; seq < member.end_seq(); ++seq) {
        if (member.at(seq) != nullptr && member.at(seq)->overlapped)
          return true;
      }
      return false;
    });
  }

  [[nodiscard]] Activity stalled(Rank rank) const {
    const ProcessState* state = graph_.state(rank);
    return state == nullptr
               ? Activity{}
               : held_up(run_, state->process->pid, state->main_stack, graph_.cutoff_ns());
  }

  /// Most are there. That few wait for most says nothing, nor does a wait that another rank may
  /// have to end.
  void name_the_few_that_are_late(Finding& finding) const {
    const RankSet few = blame_minority(group_, {waiting_, owed_.absent}, true).culprits;
    const auto by_itself = [&](Rank rank) {
      const ProcessState* const state = graph_.state(rank);
      return state != nullptr && (computes(run_, *state, graph_.cutoff_ns()) ||
                                  waits_for_own_threads(run_, *state, graph_.cutoff_ns()));
    };
    if (few != owed_.absent || !std::all_of(few.begin(), few.end(), by_itself))
      return;
    finding.culprits = few;
    finding.cause = fmt::format("{} {} busy with something of {} own", words(few),
                                few.size() == 1 ? "is" : "are", few.size() == 1 ? "its" : "their");
  }

  /// Every absent rank is held by something: that they are is a fact. Who waits for what another
  /// rank has, or for the process that gives it tasks, is not at fault.
  void name_what_it_is_stalled_on(Finding& finding) const {
    RankSet at_fault;
    for (const Rank rank : owed_.absent) {
      const Activity held = stalled(rank);
      if (held.doing == Doing::kUnknown)
        return;
      if (held.doing != Doing::kPoolTask && held.held_by.empty())
        at_fault.insert(rank);
    }
    finding.code = Code::kStalledOutside;
    finding.also.push_back(Code::kAbsentRank);
    finding.culprits = at_fault;
    finding.cause.clear();
    for (const Rank rank : owed_.absent.minus(at_fault))
      finding.affected.insert(rank);
    const RankSet& told = at_fault.empty() ? owed_.absent : at_fault;
    finding.headline = fmt::format("{}{} {}, and {}had not entered {} {}; {} waited",
                                   told.size() > 1 ? "each of " : "", words(told),
                                   in_words(stalled(*told.begin())),
                                   told == owed_.absent ? "" : words(owed_.absent) + " ",
                                   group_.label(call_), when_, words(waiting_));
  }

  /// All have entered, and some of them can do nothing for it: that is a fact, too. (If that is all
  /// of them, somebody stopped the job.)
  void name_who_is_stopped_inside(Finding& finding) const {
    RankSet held;
    for (const Rank rank : waiting_) {
      if (const Doing doing = stalled(rank).doing;
          doing == Doing::kStopped || doing == Doing::kTraced)
        held.insert(rank);
    }
    if (held.empty() || held.size() == waiting_.size())
      return;
    finding.code = Code::kStalledOutside;
    finding.also.push_back(Code::kEveryoneInside);
    finding.culprits = held;
    for (const Rank rank : held)
      finding.affected.erase(rank);
    finding.headline =
        fmt::format("{} {} inside {}; {} waited", words(held), in_words(stalled(*held.begin())),
                    group_.label(call_), words(finding.affected));
  }

  /// All have entered, and what some of them sent to another host does not get there: no rank is at
  /// fault.
  void name_the_link(Finding& finding) const {
    std::map<std::pair<Rank, std::string>, const Unacknowledged*>
        last;  // By who sent it, and whom.
    for (const Unacknowledged& sent : run_.unacknowledged) {
      if (sent.rank && waiting_.contains(*sent.rank) && sent.at_ns >= call_.issued_ns &&
          sent.at_ns <= graph_.cutoff_ns() && sent.tries >= kTriesMin)
        last[{*sent.rank, sent.host}] = &sent;
    }
    if (last.empty())
      return;
    std::set<std::string> links;
    for (const auto& [who, sent] : last) {
      const std::string from = graph_.state(who.first) == nullptr
                                   ? std::string()
                                   : graph_.state(who.first)->process->host;
      links.insert(fmt::format("{} to {}", from, sent->host));
      finding.tell(EvidenceKind::kWait, {who.first},
                   "{} bytes that rank {} has sent to {} are not acknowledged, after {} tries",
                   sent->bytes, who.first.value, sent->address, sent->tries);
    }
    finding.headline = fmt::format("all ranks of {} were inside {}, and nothing gets from {}",
                                   group_.label(), group_.label(call_), fmt::join(links, ", "));
    finding.cause =
        "the network between these hosts: both were heard of all the time over the shared "
        "directory; no rank is at fault";
  }

  void add_evidence(Finding& finding) const {
    EvidenceOfRanks lines;
    for (const Rank rank : owed_.absent) {
      const ProcessState* absent = graph_.state(rank);
      if (absent == nullptr)
        continue;
      const Activity held = stalled(rank);
      const auto site = whereabouts(*absent, graph_.cutoff_ns(),
                                    finding.culprits.contains(rank) ? "culprit" : "peer");
      lines.add(what_it_does(*absent, held).at(site));
      add_children(lines, *absent);
      if (const Raised* const raised =
              end_of_a_thread(run_, absent->process->pid, graph_.cutoff_ns()))
        tell_end_of_a_thread(finding, rank, *raised);
      if (held.doing == Doing::kPoolTask)
        add_last_call(lines, rank);
      finding.add(site);
    }
    lines.tell(finding);
  }

  void add_last_call(EvidenceOfRanks& lines, Rank rank) const {
    const Member* const member = group_.member(rank);
    const Collective* const last =
        member == nullptr || call_.seq == 0 ? nullptr : member->at(call_.seq - 1);
    if (last != nullptr)
      lines.add(
          evidence_of(EvidenceKind::kCall, {rank}, "its last call was {}", group_.label(*last))
              .about(group_.place(*last))
              .at(site_of(*member->process, *last, "peer")));
  }

  [[nodiscard]] Evidence what_it_does(const ProcessState& absent, Activity held) const {
    const auto waits = [&](std::string_view words) {
      return evidence_of(EvidenceKind::kWait, {absent.rank}, "{}", words);
    };
    if (held.doing == Doing::kUnknown && waits_for_own_threads(run_, absent, graph_.cutoff_ns()))
      held = {.doing = Doing::kOwnThread};
    if (held.doing != Doing::kUnknown)
      return waits(in_words(held));
    for (auto call = absent.open.rbegin(); call != absent.open.rend(); ++call) {
      const GroupView* const group = graph_.group_of(absent, **call);
      if (group != nullptr && !(*call)->async)
        return waits("is in " + group->label(**call)).about(group->place(**call));
    }
    if (absent.main_stack != nullptr && awaits_store(*absent.main_stack))
      return waits("waits for the store");
    return waits(absent.not_quiescent.empty() ? "waits for something else" : absent.not_quiescent);
  }

  /// What it waits for may be one of them: a loader worker, a command.
  void add_children(EvidenceOfRanks& lines, const ProcessState& absent) const {
    const StateSample* state = last_state(run_, absent.process->pid, graph_.cutoff_ns());
    const bool waits =
        state != nullptr && (state->waits_for_child || waits_for_workers(absent.main_stack));
    for (std::size_t i = 0; waits && i < std::min(state->children.size(), kChildrenMax); ++i)
      lines.add(
          evidence_of(EvidenceKind::kProcess, {absent.rank}, "{}", in_words(state->children[i])));
  }

  const Run& run_;
  std::string_view when_;
  const WaitForGraph& graph_;
  const ProcessState& waiter_;
  const Collective& call_;
  const GroupView& group_;
  BlockedOn owed_;
  RankSet waiting_{};
};

}  // namespace

bool waited_longer_than_ever(const Run& run, const Finding& stalled, std::uint64_t cutoff_ns) {
  auto longest =
      static_cast<std::uint64_t>(std::chrono::nanoseconds(kStallIsNoticedAfter).count()) / 2;
  for (const Process& process : run.processes) {
    for (const Collective& call : process.collectives) {
      if (call.completed_ns && *call.completed_ns <= cutoff_ns)
        longest = std::max(longest, *call.completed_ns - call.issued_ns);
    }
  }
  return cutoff_ns > stalled.at_ns + 2 * longest;
}

namespace {

/// What was put on a GPU may be done: it is not where a member has never come to it.
bool waits_in(const ProcessState& state, const GroupView& group, const Collective& call,
              const RankSet& wait) {
  if (call.completion_unseen)
    return (wait.contains(state.rank) ||
            (state.main_stack != nullptr && awaits_device(*state.main_stack))) &&
           std::any_of(group.members.begin(), group.members.end(),
                       [&](const Member& member) { return member.end_seq() <= call.seq; });
  return !call.async || (state.main_stack != nullptr && in_collective_wait(*state.main_stack));
}

}  // namespace

std::optional<Finding> stall(const Run& run, const WaitForGraph& graph, std::string_view when,
                             const RankSet& wait) {
  std::optional<Finding> found;
  for (const ProcessState& state : graph.states()) {
    for (const Collective* call : state.open) {
      const GroupView* group = graph.group_of(state, *call);
      if (group == nullptr || !group->fully_seen() || !waits_in(state, *group, *call, wait) ||
          history::is_point_to_point(call->op) || (found && found->at_ns <= call->issued_ns))
        continue;
      const StalledCall stalled(run, graph, state, *call, when);
      if (stalled.is_one())
        found = stalled.finding();
    }
  }
  return found;
}

}  // namespace lockstep::checkers
