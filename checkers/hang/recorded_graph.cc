#include "checkers/hang/recorded_graph.h"

#include <algorithm>
#include <tuple>

#include "harness/model/matching.h"

namespace lockstep::checkers {
namespace {

constexpr std::uint64_t kClocksApartNs = 60'000'000'000;  // Of two hosts; more makes no sense.

/// For this member the first that is not done; null where none is.
const Collective* first_open(const Member& member) {
  const Group& about = member.about();
  if (about.completed >= about.issued)
    return nullptr;
  for (std::uint64_t seq = std::max(about.completed, member.first_seq); seq < member.end_seq();
       ++seq) {
    const Collective* const call = member.at(seq);
    if (call != nullptr && !call->completed_ns)
      return call;
  }
  return nullptr;
}

/// Messages that are not done, each the first of its pair and direction.
std::vector<const Collective*> first_messages(const Member& member) {
  std::vector<const Collective*> first;
  for (const Collective& call : member.process->collectives) {
    const bool is_next = std::any_of(first.begin(), first.end(), [&](const Collective* other) {
      return other->op == call.op && other->root == call.root;
    });
    if (call.group == member.group && history::is_point_to_point(call.op) && !call.completed_ns &&
        !is_next)
      first.push_back(&call);
  }
  return first;
}

/// What the peer issued for the other end of a message; null where it did not.
const Collective* other_end(const Member& peer, const Member& member, history::Op op) {
  const std::vector<Collective>& calls = peer.process->collectives;
  const auto at = std::find_if(calls.begin(), calls.end(), [&](const Collective& call) {
    return call.group == peer.group && !call.completed_ns && history::is_point_to_point(call.op) &&
           call.op != op &&
           (call.root == member.about().my_rank || call.op == history::Op::kRecvAny);
  });
  return at == calls.end() ? nullptr : &*at;
}

/// Tarjan's strongly connected components, without recursion.
class Components {
 public:
  explicit Components(std::map<std::int32_t, RankSet> edges) : edges_(std::move(edges)) {}

  /// The first that is complete has no edge to another: of two ranks or more, or none.
  RankSet last_circle() {
    for (const auto& [node, others] : edges_) {
      if (!number_.contains(node))
        visit(node);
      if (!circle_.empty())
        return circle_;
    }
    return {};
  }

 private:
  struct Step {
    std::int32_t node{};
    std::vector<std::int32_t> left{};
  };

  void open(std::int32_t node, std::vector<Step>& steps) {
    number_[node] = low_[node] = static_cast<int>(number_.size());
    stack_.push_back(node);
    on_stack_.insert(node);
    Step step{.node = node};
    for (const Rank other : edges_[node])
      step.left.push_back(other.value);
    steps.push_back(std::move(step));
  }

  void close(std::int32_t node) {
    if (low_[node] != number_[node])
      return;
    RankSet component;
    for (std::int32_t top = -1; top != node;) {
      top = stack_.back();
      stack_.pop_back();
      on_stack_.erase(top);
      component.insert(Rank{top});
    }
    if (component.size() > 1 && circle_.empty())
      circle_ = component;
  }

  void visit(std::int32_t root) {
    std::vector<Step> steps;
    open(root, steps);
    while (!steps.empty()) {
      const std::int32_t node = steps.back().node;
      if (steps.back().left.empty()) {
        steps.pop_back();
        close(node);
        if (!steps.empty())
          low_[steps.back().node] = std::min(low_[steps.back().node], low_[node]);
        continue;
      }
      const std::int32_t next = steps.back().left.back();
      steps.back().left.pop_back();
      if (!edges_.contains(next))
        continue;
      if (!number_.contains(next))
        open(next, steps);
      else if (on_stack_.contains(next))
        low_[node] = std::min(low_[node], number_[next]);
    }
  }

  std::map<std::int32_t, RankSet> edges_;
  std::map<std::int32_t, int> number_{}, low_{};
  std::vector<std::int32_t> stack_{};
  std::set<std::int32_t> on_stack_{};
  RankSet circle_{};
};

}  // namespace

RecordedGraph::RecordedGraph(const Run& run, const std::vector<GroupView>& groups) {
  std::set<std::int32_t> dumped;
  for (const Process& process : run.processes)
    dumped.insert(process.rank->value);
  find_first(run);
  for (const GroupView& group : groups) {
    add_collectives(group);
    add_messages(group, dumped);
  }
  for (RecordedWait& wait : waits_)
    add_devices(wait);
  note_quiet(run);
}

void RecordedGraph::note_quiet(const Run& run) {
  for (const Process& process : run.processes) {
    std::uint64_t last = 0;
    for (const Collective& call : process.collectives) {
      last = std::max(
          {last, call.issued_ns, call.returned_ns.value_or(0), call.completed_ns.value_or(0)});
    }
    if (waits(*process.rank))
      quiet_ns_ = std::min(quiet_ns_, process.closed_ns - std::min(last, process.closed_ns));
  }
}

void RecordedGraph::find_first(const Run& run) {
  for (const Process& process : run.processes) {
    for (const Collective& call : process.collectives) {
      if (call.completed_ns)
        continue;
      const auto [at, is_new] = first_.try_emplace(process.rank->value, call.record);
      if (!is_new)
        at->second = std::min(at->second, call.record);
    }
  }
}

bool RecordedGraph::runs(const Member& member, const Collective& call) const {
  const bool told = call.returned_ns != call.issued_ns;
  return told ? call.returned_ns.has_value() : call.record == first_.at(member.rank.value);
}

void RecordedGraph::note_wait(const Member& member, const Collective& call, RecordedWait& wait) {
  wait.waiting.insert(member.rank);
  open_.insert(member.rank.value);
  const std::uint64_t dumped_ns = member.process->closed_ns;
  if (dumped_ns + kClocksApartNs < call.issued_ns || call.issued_ns == 0) {
    untimed_ = true;
  } else {
    const std::uint64_t waited = dumped_ns - std::min(call.issued_ns, dumped_ns);
    longest_ns_ = std::max(longest_ns_.value_or(0), waited);
  }
  wait.given_up |= call.failed;
  if (call.returned_ns)
    begun_.insert(member.rank.value);
  if (runs(member, call))
    wait.running.insert(member.rank);
}

void RecordedGraph::add_collectives(const GroupView& group) {
  std::map<std::uint64_t, RecordedWait> by_seq;
  for (const Member& member : group.members) {
    const Collective* const call = first_open(member);
    if (call == nullptr)
      continue;
    RecordedWait& wait = by_seq[call->seq];
    if (wait.call == nullptr)
      wait.call = call;
    wait.group = &group;
    wait.seq = call->seq;
    note_wait(member, *call, wait);
  }
  for (auto& [seq, wait] : by_seq) {
    for (const Member& member : group.members) {
      const Collective* const call = member.at(seq);
      (member.issued > seq ? wait.entered : wait.absent).insert(member.rank);
      wait.differs |= call != nullptr && !agree(*wait.call, *call);
    }
    for (const Rank rank : group.ranks) {
      if (!wait.entered.contains(rank) && !wait.absent.contains(rank))
        wait.unseen.insert(rank);
    }
    waits_.push_back(std::move(wait));
  }
}

void RecordedGraph::add_messages(const GroupView& group, const std::set<std::int32_t>& dumped) {
  for (const Member& member : group.members) {
    for (const Collective* const call : first_messages(member)) {
      RecordedWait wait{.group = &group, .call = call, .seq = call->seq};
      wait.to_one = true;
      note_wait(member, *call, wait);
      wait.entered = wait.waiting;
      const std::optional<Rank> peer = group.global_rank(call->root);
      // A device that has not come to it waits for something else.
      if (!peer || call->op == history::Op::kRecvAny || !call->returned_ns)
        continue;
      const Member* const other = group.member(*peer);
      const Collective* const end =
          other == nullptr ? nullptr : other_end(*other, member, call->op);
      if (other == nullptr && !dumped.contains(peer->value))
        wait.unseen.insert(*peer);
      else
        (end != nullptr ? wait.entered : wait.absent).insert(*peer);
      if (end != nullptr && !runs(*other, *end))
        wait.behind.insert(*peer);
      waits_.push_back(std::move(wait));
    }
  }
}

void RecordedGraph::add_devices(RecordedWait& wait) const {
  if (wait.to_one || wait.differs || !wait.absent.empty())
    return;
  RankSet done, begun, not_begun;
  for (const Member& member : wait.group->members) {
    const Collective* const call = member.at(wait.seq);
    if (member.about().completed > wait.seq)
      done.insert(member.rank);
    else if (call != nullptr)
      (call->returned_ns ? begun : not_begun).insert(member.rank);
  }
  if (!not_begun.empty() && !(begun.empty() && done.empty()))
    wait.behind = not_begun;
  else if (done.size() > wait.waiting.size())
    wait.behind = wait.waiting;
  else if (not_begun.empty() && !wait.running.empty() &&
           wait.unseen.empty()) {  // Those have another call in front.
    wait.behind = wait.waiting.minus(wait.running);
    wait.supposed = true;
  }
}

std::map<std::int32_t, RankSet> RecordedGraph::owed() const {
  std::map<std::int32_t, RankSet> owed;
  for (const RecordedWait& wait : waits_) {
    for (const Rank rank : wait.running) {
      for (const Rank other : wait.owing()) {
        if (other != rank)
          owed[rank.value].insert(other);
      }
      for (const Rank other : wait.unseen)
        owed[rank.value].insert(other);
    }
  }
  return owed;
}

RankSet RecordedGraph::roots() const {
  RankSet hosts, devices;
  const std::map<std::int32_t, RankSet> owing = owed();
  for (const RecordedWait& wait : waits_) {
    for (const Rank rank : wait.absent) {
      if (!waits(rank))
        hosts.insert(rank);
    }
    // Who has begun another call waits in that.
    for (const Rank rank : wait.behind) {
      if (!owing.contains(rank.value) &&
          (!begun_.contains(rank.value) || wait.waiting == wait.behind))
        devices.insert(rank);
    }
  }
  return hosts.empty() ? devices : hosts;
}

RankSet RecordedGraph::circle() const { return Components(owed()).last_circle(); }

std::optional<std::uint64_t> RecordedGraph::longest_ns() const {
  return untimed_ ? std::nullopt : longest_ns_;
}

}  // namespace lockstep::checkers
