// The twin that ends well: what most members called, called by all of them, in one order that all
// keep to. Nobody can wait for another one in a circle then.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <tuple>

#include "harness/exports/replay.h"
#include "harness/exports/shown.h"
#include "harness/model/group_view.h"

namespace lockstep::exports {
namespace {

using history::Op;

/// A call of a whole group, or a message, with the calls that the ranks made of it.
struct Together {
  std::uint64_t at_ns{kNeverNs};
  std::map<std::size_t, const ReplayCall*> calls{};  ///< By rank.
};

bool alike(const ReplayCall& a, const ReplayCall& b) {
  return a.op == b.op && a.dtype == b.dtype && a.reduce_op == b.reduce_op && a.peer == b.peer &&
         a.given == b.given && a.received == b.received;
}

/// What most of them called; of two that are equally many, what an innocent rank did.
const ReplayCall& most(const Together& together, const Finding& finding) {
  const ReplayCall* best = nullptr;
  std::tuple<std::size_t, bool> weight{0, false};
  for (const auto& [rank, call] : together.calls) {
    std::size_t votes = 0;
    for (const auto& [other, theirs] : together.calls)
      votes += alike(*call, *theirs) ? 1U : 0U;
    const std::tuple own{votes, !finding.culprits.contains(Rank{static_cast<std::int32_t>(rank)})};
    if (best == nullptr || own > weight) {
      best = call;
      weight = own;
    }
  }
  return *best;
}

class Repair {
 public:
  Repair(const Replay& replay, const Finding& finding) : replay_(replay), finding_(finding) {}

  Result<Replay> made() {
    for (std::size_t rank = 0; rank < replay_.ranks.size(); ++rank) {
      for (const ReplayCall& call : replay_.ranks[rank].calls) {
        if (call.op == Op::kRecvAny)
          return refused("a receive from any rank", "receives that say from whom, for --fixed");
        add(rank, call);
      }
    }
    Replay fixed{.groups = replay_.groups, .ranks = {}, .notes = replay_.notes};
    fixed.ranks.resize(replay_.ranks.size());
    for (const auto& [key, together] : in_order()) {
      if (std::get<1>(key) < 0)
        make(fixed, key, together);
      else
        send(fixed, key, together);
    }
    return fixed;
  }

 private:
  /// Group, sender or -1, receiver, tag, number.
  using Key = std::tuple<std::size_t, std::int32_t, std::int32_t, std::int32_t, std::uint64_t>;

  void add(std::size_t rank, const ReplayCall& call) {
    Key key{call.group, -1, -1, 0, call.seq};
    if (history::is_point_to_point(call.op)) {
      const std::int32_t self = place_of(call.group, rank);
      const bool sends = call.op == Op::kSend;
      key = {call.group, sends ? self : call.peer, sends ? call.peer : self, call.tag, call.seq};
    } else if (!finding_.culprits.contains(Rank{static_cast<std::int32_t>(rank)})) {
      auto& end = ends_[call.group];
      end = std::max(end, call.seq + 1);
    }
    Together& together = all_[key];
    together.at_ns = std::min(together.at_ns, call.issued_ns);
    together.calls[rank] = &call;
  }

  [[nodiscard]] std::int32_t place_of(std::size_t group, std::size_t rank) const {
    const std::vector<Rank>& ranks = replay_.groups[group].ranks;
    const auto at = std::find(ranks.begin(), ranks.end(), Rank{static_cast<std::int32_t>(rank)});
    return static_cast<std::int32_t>(at - ranks.begin());
  }

  /// By time, and within a group or between two ranks by number. A call that only a culprit made is
  /// one too many.
  [[nodiscard]] std::vector<std::pair<Key, Together>> in_order() const {
    std::vector<std::pair<Key, Together>> order;
    std::map<std::tuple<std::size_t, std::int32_t, std::int32_t, std::int32_t>, std::uint64_t> last;
    for (const auto& [key, together] : all_) {
      const auto& [group, from, to, tag, seq] = key;
      const auto end = ends_.find(group);
      if (from < 0 && end != ends_.end() && seq >= end->second)
        continue;
      std::uint64_t& before = last[{group, from, to, tag}];
      order.emplace_back(key, together);
      before = order.back().second.at_ns = std::max(before, together.at_ns);
    }
    std::stable_sort(order.begin(), order.end(),
                     [](const auto& a, const auto& b) { return a.second.at_ns < b.second.at_ns; });
    return order;
  }

  static ReplayCall at_once(ReplayCall call) {
    call.later = false;
    call.waits.clear();
    return call;
  }

  void make(Replay& fixed, const Key& key, const Together& together) const {
    const ReplayCall call = at_once(most(together, finding_));
    for (const Rank rank : replay_.groups[std::get<0>(key)].ranks)
      fixed.ranks[static_cast<std::size_t>(rank.value)].calls.push_back(call);
  }

  void send(Replay& fixed, const Key& key, const Together& together) const {
    const auto& [group, from, to, tag, seq] = key;
    const std::vector<Rank>& ranks = replay_.groups[group].ranks;
    const ReplayCall* of_sender = nullptr;
    for (const auto& [rank, call] : together.calls)
      of_sender = of_sender == nullptr || call->op == Op::kSend ? call : of_sender;
    for (const std::int32_t place : {from, to}) {
      if (place < 0 || static_cast<std::size_t>(place) >= ranks.size())
        return;
      const auto rank = static_cast<std::size_t>(ranks[static_cast<std::size_t>(place)].value);
      const auto own = together.calls.find(rank);
      ReplayCall call = at_once(own == together.calls.end() ? *of_sender : *own->second);
      const std::uint64_t size = std::max(of_sender->given, of_sender->received);
      call.op = place == from ? Op::kSend : Op::kRecv;
      call.peer = place == from ? to : from;
      call.dtype = of_sender->dtype;
      call.given = place == from ? size : 0;
      call.received = place == from ? 0 : size;
      fixed.ranks[rank].calls.push_back(call);
    }
  }

  const Replay& replay_;
  const Finding& finding_;
  std::map<Key, Together> all_{};
  std::map<std::size_t, std::uint64_t> ends_{};  ///< Of each group, by innocent members.
};

}  // namespace

Result<Replay> repaired(const Replay& replay, const Finding& finding) {
  return Repair(replay, finding).made();
}

}  // namespace lockstep::exports
