#include "checkers/hang/odd_calls.h"

#include <algorithm>
#include <map>

#include "checkers/order/kindred_groups.h"

namespace lockstep::checkers {
namespace {

using history::Op;

bool is_message_of(const Member& member, const Collective& call) {
  return call.group == member.group && history::is_point_to_point(call.op);
}

template <class Fits>
bool has_message(const Member& member, Fits fits) {
  const std::vector<Collective>& calls = member.process->collectives;
  return std::any_of(calls.begin(), calls.end(), [&](const Collective& call) {
    return is_message_of(member, call) && fits(call);
  });
}

/// It has such messages with somebody, which are done.
bool has_done(const Member& member, Op op) {
  return has_message(member,
                     [&](const Collective& call) { return call.op == op && call.completed_ns; });
}

bool has_done_with(const Member& member, Op op, std::int32_t peer) {
  return has_message(member, [&](const Collective& call) {
    return call.op == op && call.root == peer && call.completed_ns;
  });
}

/// Done or not, or a receive from anybody.
bool has_other_end(const Member& peer, Op op, std::int32_t of) {
  return has_message(peer, [&](const Collective& call) {
    return call.op != op && (call.root == of || call.op == Op::kRecvAny);
  });
}

bool has_any_with(const Member& member, Op op, std::int32_t peer) {
  return has_message(member,
                     [&](const Collective& call) { return call.op == op && call.root == peer; });
}

/// Groups in which the rank at this place has such messages; 0 where one of them goes there, too.
std::size_t kindred_without(const std::vector<GroupView>& groups, const GroupView& group,
                            const Member& member, const Collective& call) {
  std::size_t kindred = 0;
  for (const GroupView& other : groups) {
    if (!is_kindred(group, other))
      continue;
    for (const Member& alike : other.members) {
      if (alike.about().my_rank != member.about().my_rank)
        continue;
      if (has_any_with(alike, call.op, call.root))
        return 0;
      kindred += has_done(alike, call.op) ? 1 : 0;
    }
  }
  return kindred;
}

/// How many groups show that it is odd; 0: it is not, or nothing shows.
std::size_t shown_odd(const std::vector<GroupView>& groups, const GroupView& group,
                      const Member& member, const Collective& call) {
  const auto peer_rank = group.global_rank(call.root);
  const Member* const peer = peer_rank ? group.member(*peer_rank) : nullptr;
  if (peer == nullptr || call.op == Op::kRecvAny || kind_of_group(group.name).empty() ||
      has_other_end(*peer, call.op, member.about().my_rank))
    return 0;
  const std::size_t kindred = kindred_without(groups, group, member, call);
  return kindred < kKindredMin ? 0 : kindred;
}

}  // namespace

std::optional<OddMessage> odd_message(const std::vector<GroupView>& groups,
                                      const std::vector<RecordedWait>& waits) {
  std::optional<OddMessage> found;
  bool several = false;
  const auto look_at = [&](const RecordedWait& wait, const Member& member, const Collective& call) {
    const std::size_t kindred = shown_odd(groups, *wait.group, member, call);
    several |= kindred > 0 && found && found->rank != member.rank;
    if (kindred > 0)
      found = OddMessage{.rank = member.rank, .wait = &wait, .call = &call, .kindred = kindred};
  };
  for (const RecordedWait& wait : waits) {
    if (!wait.to_one || wait.running.size() != 1)
      continue;
    const Member* const member = wait.group->member(*wait.running.begin());
    if (member != nullptr && has_done(*member, wait.call->op) &&
        !has_done_with(*member, wait.call->op, wait.call->root))
      look_at(wait, *member, *wait.call);
    const Member* const owing =
        wait.absent.empty() ? nullptr : wait.group->member(*wait.absent.begin());
    // What the one that it waits for has sent instead, to somebody who did not take it.
    for (std::size_t i = 0; owing != nullptr && i < owing->process->collectives.size(); ++i) {
      const Collective& call = owing->process->collectives[i];
      if (is_message_of(*owing, call) && call.completed_ns && call.op != wait.call->op)
        look_at(wait, *owing, call);
    }
  }
  return several ? std::nullopt : found;
}

RankSet odd_sizes(const RecordedWait& wait) {
  const bool is_exchange = wait.call->op == Op::kAllToAll || wait.call->op == Op::kAllToAllSingle;
  if (!is_exchange || wait.running != wait.entered ||
      wait.entered.size() != static_cast<std::size_t>(wait.group->size))
    return {};
  std::map<std::uint64_t, RankSet> by_size;
  for (const Member& member : wait.group->members) {
    const Collective* const call = member.at(wait.seq);
    if (call == nullptr || call->numel_in != call->numel_out)
      return {};
    by_size[call->numel_in].insert(member.rank);
  }
  if (by_size.size() != 2)
    return {};
  const RankSet &one = by_size.begin()->second, &other = by_size.rbegin()->second;
  const RankSet& few = one.size() < other.size() ? one : other;
  return few.size() == 1 && wait.group->size > 2 ? few : RankSet{};
}

}  // namespace lockstep::checkers
