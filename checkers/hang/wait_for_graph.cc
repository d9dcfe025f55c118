#include "checkers/hang/wait_for_graph.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string_view>
#include <tuple>

#include "harness/history/format.h"
#include "harness/history/rank_places.h"
#include "harness/model/coverage.h"
#include "harness/model/matching.h"

namespace lockstep::checkers {
namespace {

using history::Op;

/// Ranks whose process ended by itself, and that nobody can start again.
RankSet gone_ranks(const Run& run, std::uint64_t cutoff_ns) {
  RankSet gone;
  for (const ProcessEnd& end : run.ends) {
    if (end.role != Role::kRank || !end.rank || end.our_signal || end.at_ns > cutoff_ns)
      continue;
    if (!history::wrapper_lives(run, *end.rank, cutoff_ns))
      gone.insert(*end.rank);
  }
  // The user's own launcher may start a rank again as long as it lives.
  for (const ProcessStart& start : run.starts) {
    const bool lives = start.role == Role::kOther &&
                       std::none_of(run.ends.begin(), run.ends.end(), [&](const ProcessEnd& end) {
                         return end.pid == start.pid && end.at_ns <= cutoff_ns;
                       });
    if (lives)
      return {};
  }
  return gone;
}

/// A member that completed what another one, whose history is complete, never issued: someone's
/// calls are not all seen.
bool is_partly_seen(const GroupView& group, std::uint64_t cutoff_ns) {
  std::uint64_t fewest = kNeverNs;
  for (const Member& member : group.members) {
    if (member.is_complete)
      fewest = std::min(fewest, member.issued);
  }
  for (const Member& member : group.members) {
    for (std::uint64_t seq = std::max(fewest, member.first_seq);
         fewest != kNeverNs && seq < member.issued; ++seq) {
      const Collective* call = member.at(seq);
      if (call != nullptr && completion_needs_everyone(*call) && *call->completed_ns <= cutoff_ns)
        return true;
    }
  }
  return false;
}

/// How many messages of one kind a member has issued on a channel; none if that is not known.
std::optional<std::uint64_t> messages(const Member& member, Op op, std::int32_t peer,
                                      std::int32_t tag, std::uint64_t cutoff_ns) {
  std::uint64_t count = 0;
  bool any = false;
  for (const Collective& call : member.process->collectives) {
    if (call.group != member.group || call.op != op || call.issued_ns > cutoff_ns ||
        (op != Op::kRecvAny && call.root != peer) || call.tag != tag)
      continue;
    if (call.seq == history::kSeqUnknown)
      return std::nullopt;
    count = op == Op::kRecvAny ? count + 1 : std::max(count, call.seq + 1);
    any = true;
  }
  if (!any && member.process->dropped > 0)
    return std::nullopt;
  return count;
}

}  // namespace

WaitForGraph::WaitForGraph(const Job& job)
    : WaitForGraph(job.run(), job.first_act_ns(), job.groups()) {}

WaitForGraph::WaitForGraph(const Run& run, std::uint64_t cutoff_ns, std::vector<GroupView> groups)
    : run_(run), cutoff_ns_(cutoff_ns), groups_(std::move(groups)) {
  for (const GroupView& group : groups_)
    partly_seen_.push_back(is_partly_seen(group, cutoff_ns_));
  gone_ = gone_ranks(run, cutoff_ns_);
  for (const ProcessEnd& end : run.ends) {
    if (end.rank && gone_.contains(*end.rank) && end.failed() && end.at_ns <= cutoff_ns_)
      crashed_.insert(*end.rank);
  }
  for (const Rank rank : ranks_of(run)) {
    const Process* process = current_process(run, rank);
    if (process != nullptr)
      states_.push_back(state_of(run, *process, cutoff_ns_));
  }
  for (ProcessState& state : states_)
    leave_out_what_came(state);
}

/// Messages that came are not told. One that both sides have issued has come once both are at rest.
void WaitForGraph::leave_out_what_came(ProcessState& state) const {
  std::map<std::tuple<std::uint32_t, Op, std::int32_t, std::int32_t>, std::uint64_t> came;
  const auto has_come = [&](const Collective* call) {
    if ((call->op != Op::kSend && call->op != Op::kRecv) || call->seq == history::kSeqUnknown)
      return false;
    const auto [channel, is_new] = came.try_emplace({call->group, call->op, call->root, call->tag});
    if (is_new)
      channel->second = messages_come(state, *call);
    return call->seq < channel->second;
  };
  for (Activity& wait : state.waits) {
    if (wait.calls.empty())
      continue;
    std::erase_if(wait.calls, has_come);
    if (wait.calls.empty()) {
      state.quiescent = false;
      state.not_quiescent = "it waits for a message that has come";
    }
  }
}

/// As far as is known: how many of the messages of this channel (group, direction, peer, tag).
std::uint64_t WaitForGraph::messages_come(const ProcessState& state, const Collective& call) const {
  const GroupView* const group = group_of(state, call);
  const auto peer_rank = group == nullptr ? std::nullopt : group->global_rank(call.root);
  const Member* const peer = peer_rank ? group->member(*peer_rank) : nullptr;
  const ProcessState* const theirs = peer_rank ? this->state(*peer_rank) : nullptr;
  const bool at_rest = peer != nullptr && theirs != nullptr && peer->process == theirs->process &&
                       peer->process->boot_id == state.process->boot_id && state.idle_from_ns &&
                       theirs->idle_from_ns && state.last_event_ns <= *theirs->idle_from_ns &&
                       theirs->last_event_ns <= *state.idle_from_ns;
  if (!at_rest)
    return 0;
  const Member& me = *group->member(state.rank);
  const Member& receiver = call.op == Op::kSend ? *peer : me;
  if (messages(receiver, Op::kRecvAny, 0, call.tag, cutoff_ns_) != 0U)
    return 0;  // It may have taken any of them.
  return messages(*peer, call.op == Op::kSend ? Op::kRecv : Op::kSend, me.about().my_rank, call.tag,
                  cutoff_ns_)
      .value_or(0);
}

const ProcessState* WaitForGraph::state(Rank rank) const {
  for (const ProcessState& state : states_) {
    if (state.rank == rank)
      return &state;
  }
  return nullptr;
}

const GroupView* WaitForGraph::group_of(const ProcessState& state, const Collective& call) const {
  for (const GroupView& group : groups_) {
    const Member* member = group.member(state.rank);
    if (member != nullptr && member->process == state.process && member->group == call.group)
      return &group;
  }
  return nullptr;
}

void WaitForGraph::owing_collective(const GroupView& group, const Collective& call,
                                    BlockedOn& wait) const {
  for (const Member& member : group.members) {
    if (!member.is_complete || member.rank == wait.rank)
      continue;
    if (member.issued <= call.seq) {
      wait.absent.insert(member.rank);
      continue;
    }
    const Collective* theirs = member.at(call.seq);
    if (theirs != nullptr && !theirs->overlapped && !call.overlapped && !agree(call, *theirs))
      wait.incompatible.insert(member.rank);
    else if (theirs != nullptr && !crashed_.empty() && is_broken(member.rank, *theirs))
      wait.broken.insert(member.rank);
  }
}

/// Its part in the call is over without a result, and a member has crashed: no timeout of the
/// caller's did it.
bool WaitForGraph::is_broken(Rank rank, const Collective& call) const {
  const bool completed = call.completed_ns && *call.completed_ns <= cutoff_ns_;
  return completed ? call.failed : crashed_.contains(rank) && !call.completion_unseen;
}

void WaitForGraph::owing_message(const GroupView& group, const Member& me, const Collective& call,
                                 BlockedOn& wait) const {
  if (call.seq == history::kSeqUnknown || !me.is_complete)
    return;
  const std::int32_t mine = me.about().my_rank;
  const auto sent_to_me = [&](const Member& from) {
    return messages(from, Op::kSend, mine, call.tag, cutoff_ns_);
  };
  if (call.op == Op::kRecvAny) {  // Owed only if nobody at all can still send.
    std::uint64_t sent = 0;
    std::uint64_t received = messages(me, Op::kRecvAny, 0, call.tag, cutoff_ns_).value_or(0);
    if (!group.fully_seen())
      return;
    for (const Member& from : group.members) {
      const auto to_me = sent_to_me(from);
      const auto from_them = messages(me, Op::kRecv, from.about().my_rank, call.tag, cutoff_ns_);
      if (!to_me || !from_them)
        return;
      sent += from.rank == me.rank ? 0 : *to_me;
      received += *from_them;
    }
    for (const Member& from : group.members) {
      if (from.rank != me.rank && sent < received)
        wait.absent.insert(from.rank);
    }
    return;
  }
  const std::optional<Rank> peer_rank = group.global_rank(call.root);
  const Member* peer = peer_rank ? group.member(*peer_rank) : nullptr;
  if (peer == nullptr || !peer->is_complete)
    return;
  if (call.op == Op::kSend) {
    const auto received = messages(*peer, Op::kRecv, mine, call.tag, cutoff_ns_);
    const auto from_anyone = messages(*peer, Op::kRecvAny, 0, call.tag, cutoff_ns_);
    if (received && from_anyone && *received + *from_anyone <= call.seq)
      wait.absent.insert(peer->rank);
    return;
  }
  const auto sent = sent_to_me(*peer);
  if (sent && *sent <= call.seq)
    wait.absent.insert(peer->rank);
}

BlockedOn WaitForGraph::owing(const ProcessState& waiter, const Collective& call) const {
  BlockedOn wait{waiter.rank, &call, group_of(waiter, call), {}, {}, {}};
  if (wait.group == nullptr || wait.group->members_disagree)
    return wait;
  if (partly_seen_[static_cast<std::size_t>(wait.group - groups_.data())])
    return wait;
  if (history::is_point_to_point(call.op))
    owing_message(*wait.group, *wait.group->member(waiter.rank), call, wait);
  else
    owing_collective(*wait.group, call, wait);
  return wait;
}

// Who is idle is asked on when all have answered that were asked together. While the reference
// computes, nobody else is waited for; nor is a rank that was told that its batches are over, as
// long as others have some.
bool WaitForGraph::may_be_asked(const RankSet& stuck) const {
  constexpr std::string_view kTold = "exhausted";
  RankSet told;
  for (const Request& request : run_.requests) {
    if (request.at_ns <= cutoff_ns_ && request.rank && request.message == kTold)
      told.insert(*request.rank);
  }
  const bool all_are_told = told == RankSet::all(run_.plan.world_size);
  bool may = true;
  for (const Request& request : run_.requests) {
    if (request.at_ns > cutoff_ns_ || (request.answered_ns && *request.answered_ns <= cutoff_ns_))
      continue;
    if (request.role != Role::kRank)
      return true;
    if (request.rank && stuck.contains(*request.rank))
      may = may && request.message == kTold && !all_are_told;
  }
  return may;
}

// Which of the others it needs does not show; one that makes a group, too, may be the one.
bool WaitForGraph::others_may_make_it(Rank rank, const RankSet& stuck) const {
  const RankSet ranks = ranks_of(run_);
  return std::any_of(ranks.begin(), ranks.end(), [&](Rank other) {
    return other != rank && !gone_.contains(other) &&
           (!stuck.contains(other) || state(other)->one_is(Doing::kInNewGroup));
  });
}

bool WaitForGraph::can_go_on(const ProcessState& state, const RankSet& stuck) const {
  const auto lost = [&](const RankSet& ranks, bool all) {
    const auto is_lost = [&](Rank rank) { return stuck.contains(rank) || gone_.contains(rank); };
    return !ranks.empty() && (all ? std::all_of(ranks.begin(), ranks.end(), is_lost)
                                  : std::any_of(ranks.begin(), ranks.end(), is_lost));
  };
  for (const Activity& wait : state.waits) {
    if (wait.doing == Doing::kNextRequest) {
      if (may_be_asked(stuck))
        return true;
      continue;
    }
    if (wait.doing == Doing::kInNewGroup) {
      if (others_may_make_it(state.rank, stuck))
        return true;
      continue;
    }
    for (const Collective* call : wait.calls) {
      const BlockedOn owed = owing(state, *call);
      // A message from anyone may come from any of them, a collective needs every one.
      if (!lost(owed.absent, call->op == Op::kRecvAny) && !lost(owed.incompatible, false) &&
          !lost(owed.broken, false))
        return true;
    }
  }
  return state.waits.empty();
}

RankSet WaitForGraph::stuck() const {
  RankSet stuck;
  if (!journal_is_whole(run_))
    return stuck;
  for (const ProcessState& state : states_) {
    const bool is_complete =
        !state.process->damaged &&
        std::all_of(groups_.begin(), groups_.end(), [&](const GroupView& group) {
          const Member* member = group.member(state.rank);
          return member == nullptr || member->is_complete;
        });
    if (state.quiescent && is_complete && !gone_.contains(state.rank))
      stuck.insert(state.rank);
  }
  for (bool changed = true; changed;) {
    changed = false;
    for (const ProcessState& state : states_) {
      if (stuck.contains(state.rank) && can_go_on(state, stuck)) {
        stuck.erase(state.rank);
        changed = true;
      }
    }
  }
  return stuck;
}

std::vector<BlockedOn> WaitForGraph::waits_of(const RankSet& stuck) const {
  std::vector<BlockedOn> waits;
  for (const ProcessState& state : states_) {
    if (!stuck.contains(state.rank))
      continue;
    for (const Activity& wait : state.waits) {
      for (const Collective* call : wait.calls) {
        BlockedOn owed = owing(state, *call);
        const auto keep_lost = [&](RankSet& ranks) {
          for (const Rank rank : RankSet(ranks)) {
            if (!stuck.contains(rank) && !gone_.contains(rank))
              ranks.erase(rank);
          }
        };
        keep_lost(owed.absent);
        keep_lost(owed.incompatible);
        keep_lost(owed.broken);
        waits.push_back(std::move(owed));
      }
    }
  }
  return waits;
}

Reason WaitForGraph::partly_seen() const {
  for (std::size_t i = 0; i < groups_.size(); ++i) {
    if (partly_seen_[i])
      return incomplete(fmt::format(
          "a collective of group {} completed that a member is not known to have issued",
          groups_[i].label()));
  }
  return {};
}

}  // namespace lockstep::checkers
