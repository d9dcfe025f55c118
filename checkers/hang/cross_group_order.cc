#include "checkers/hang/cross_group_order.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>

#include "checkers/blame/sequence_alignment.h"
#include "harness/model/call_site.h"

namespace lockstep::checkers {
namespace {

/// Where the calls after the parting stand in the common order.
constexpr std::uint64_t kNext = std::uint64_t{1} << 40;

struct Step {
  const GroupView* group{};
  const Collective* call{};
  [[nodiscard]] std::pair<const GroupView*, std::uint64_t> place() const {
    return {group, call->seq};
  }
};
using Order = std::vector<Step>;

/// What a rank issued on these groups; nothing if several threads did, whose order is no matter of
/// the program's.
Order order_of(Rank rank, const std::vector<const GroupView*>& groups) {
  Order order;
  for (const GroupView* const group : groups) {
    for (const Collective* const call : group->member(rank)->slots) {
      if (call != nullptr)
        order.push_back({group, call});
    }
  }
  std::sort(order.begin(), order.end(),
            [](const Step& a, const Step& b) { return a.call->record < b.call->record; });
  const auto issuer = [&](const Step& step) {
    return issuer_of(*step.group->member(rank)->process, *step.call);
  };
  const bool by_one_thread = std::all_of(order.begin(), order.end(), [&](const Step& step) {
    return issuer(step) == issuer(order.front());
  });
  return by_one_thread ? order : Order{};
}

Order::const_iterator find(const Order& order, const Step& step) {
  return std::find_if(order.begin(), order.end(),
                      [&](const Step& each) { return each.place() == step.place(); });
}

/// The last call that all of them made; null if there is none.
const Step* last_of_all(const std::vector<Order>& orders) {
  const Order& first = orders.front();
  const auto last = std::find_if(first.rbegin(), first.rend(), [&](const Step& step) {
    return std::all_of(orders.begin(), orders.end(),
                       [&](const Order& order) { return find(order, step) != order.end(); });
  });
  return last == first.rend() ? nullptr : &*last;
}

bool all_is_known(const std::vector<const GroupView*>& groups, bool from_the_start) {
  return std::all_of(groups.begin(), groups.end(), [&](const GroupView* group) {
    return group->run_is_whole && group->fully_seen() &&
           std::all_of(group->members.begin(), group->members.end(), [&](const Member& member) {
             return !(from_the_start && member.overwritten);
           });
  });
}

bool is_stuck_in(const WaitForGraph& graph, Rank rank, const Collective& call) {
  const ProcessState* const state = graph.state(rank);
  return state != nullptr &&
         std::find(state->open.begin(), state->open.end(), &call) != state->open.end();
}

/// What the thread that issued the member's last call issued on all groups.
std::vector<Token> tokens_of(const Member& member) {
  std::vector<Token> tokens;
  const std::int32_t thread = issuer_of(*member.process, *member.slots.back());
  for (const Collective& call : member.process->collectives) {
    if (issuer_of(*member.process, call) == thread && !history::is_point_to_point(call.op))
      tokens.push_back({&call, member.site_key(call)});
  }
  return tokens;
}

bool same_members(const GroupView& a, const GroupView& b) {
  return a.members.size() == b.members.size() && a.size == b.size &&
         std::equal(a.members.begin(), a.members.end(), b.members.begin(),
                    [](const Member& x, const Member& y) { return x.process == y.process; });
}

/// Of all groups with the members of `group`.
Parting parting_in_one_order(const Run& run, const WaitForGraph& graph, const GroupView& group) {
  std::vector<const GroupView*> groups;
  for (const GroupView& each : graph.groups()) {
    if (same_members(each, group))
      groups.push_back(&each);
  }
  std::vector<Order> orders;
  for (const Member& member : group.members)
    orders.push_back(order_of(member.rank, groups));
  if (groups.size() < 2 || orders.empty())
    return {};
  const Step* const last = last_of_all(orders);
  if (!all_is_known(groups, /*from_the_start=*/last == nullptr))
    return {};
  GroupView all;
  all.size = group.size;
  std::map<std::pair<const GroupView*, std::uint64_t>, RankSet> next;
  for (std::size_t i = 0; i < orders.size(); ++i) {
    const Order& order = orders[i];
    const auto parted = last == nullptr ? order.begin() : std::next(find(order, *last));
    if (parted == order.end() || !is_stuck_in(graph, group.members[i].rank, *parted->call))
      return {};
    next[parted->place()].insert(group.members[i].rank);
    Member& member = all.members.emplace_back(group.members[i]);
    member.first_seq = kNext - static_cast<std::uint64_t>(parted - order.begin());
    member.slots.clear();
    for (const Step& step : order)
      member.slots.push_back(step.call);
  }
  std::vector<RankSet> classes;
  for (const auto& [place, ranks] : next)
    classes.push_back(ranks);
  Attribution blame = blame_minority(all, classes, /*blamable=*/true);
  if (blame.culprits.empty())
    blame = blame_unusual_call(run, all, kNext, classes.size() > 1);
  if (blame.culprits.empty())
    return {};
  const Member* const one = group.member(*blame.culprits.begin());
  return {blame,
          fmt::format("{}all made the same calls in the same order, then {} made another one",
                      last == nullptr ? "" : "up to " + last->group->label(*last->call) + " ",
                      words(blame.culprits)),
          one, all.member(one->rank)->at(kNext)};
}

/// Where the member, against what it always did, left out what `waiting`, which waits for it, made.
Parting left_out_by(const Member& member, const Member& waiting) {
  const auto made_none = [](const Member& each) {
    return each.slots.empty() || each.slots.back() == nullptr;
  };
  if (made_none(member) || made_none(waiting))
    return {};
  TokenWindow own{tokens_of(member), 0};
  const auto at = left_out(own.tokens, tokens_of(waiting));
  if (!at)
    return {};
  own.position = *at;
  const UsualNextCall here = usual_next_call(own);
  if (here.kind != UsualNextCall::Kind::kBroken)
    return {};
  return {{{member.rank}, Confidence::kLikely},
          fmt::format("{} always made the {}{} after the calls before it, and once went on "
                      "without it",
                      words({member.rank}), history::name_of(here.usual->op),
                      at_site(site_of(*member.process, *here.usual, "peer"))),
          &member,
          own.tokens[*at].call};
}

/// Of the members that the call lacks, the one that left it out.
Parting left_out_of(const BlockedCall& blocked) {
  const Member* const waiting = blocked.group->member(*blocked.waiting.begin());
  Parting found;
  if (waiting == nullptr || !all_is_known({blocked.group}, /*from_the_start=*/true))
    return found;
  for (const Rank rank : blocked.absent) {
    const Member* const member = blocked.group->member(rank);
    const Parting by = member == nullptr ? Parting{} : left_out_by(*member, *waiting);
    if (by.member != nullptr && found.member != nullptr)
      return {};
    if (by.member != nullptr)
      found = by;
  }
  return found;
}

}  // namespace

Parting parting(const Run& run, const WaitForGraph& graph, const std::vector<BlockedCall>& calls) {
  if (calls.empty() || std::any_of(calls.begin(), calls.end(), [](const BlockedCall& blocked) {
        return history::is_point_to_point(blocked.call->op);
      }))
    return {};
  const GroupView& group = *calls.front().group;
  if (std::all_of(calls.begin(), calls.end(), [&](const BlockedCall& blocked) {
        return same_members(*blocked.group, group);
      })) {
    if (Parting found = parting_in_one_order(run, graph, group); found.member != nullptr)
      return found;
  }
  Parting found;
  for (const BlockedCall& blocked : calls) {
    const Parting by = left_out_of(blocked);
    if (by.member == nullptr)
      continue;
    if (found.member != nullptr && found.member->rank != by.member->rank)
      return {};
    found = by;
  }
  return found;
}

}  // namespace lockstep::checkers
