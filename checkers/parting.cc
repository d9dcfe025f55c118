#include "checkers/parting.h"

#include <algorithm>
#include <map>

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
  const bool by_one_thread = std::all_of(order.begin(), order.end(), [&](const Step& step) {
    return step.call->thread == order.front().call->thread;
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

bool is_stuck_in(const Situation& situation, Rank rank, const Collective& call) {
  const ProcessState* const state = situation.state(rank);
  return state != nullptr &&
         std::find(state->open.begin(), state->open.end(), &call) != state->open.end();
}

}  // namespace

bool same_members(const GroupView& a, const GroupView& b) {
  return a.members.size() == b.members.size() && a.size == b.size &&
         std::equal(a.members.begin(), a.members.end(), b.members.begin(),
                    [](const Member& x, const Member& y) { return x.process == y.process; });
}

Parting parting(const Run& run, const Situation& situation, const GroupView& group) {
  std::vector<const GroupView*> groups;
  for (const GroupView& each : situation.groups()) {
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
    if (parted == order.end() || !is_stuck_in(situation, group.members[i].rank, *parted->call))
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
  Parting result{blame_minority(all, classes, /*blamable=*/true), ""};
  if (result.blame.culprits.empty())
    result.blame = blame_broken_habit(run, all, kNext, classes.size() > 1);
  if (last != nullptr)
    result.after = last->group->label(*last->call);
  return result;
}

}  // namespace lockstep::checkers
