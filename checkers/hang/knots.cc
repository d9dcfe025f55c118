#include "checkers/hang/knots.h"

#include <algorithm>

namespace lockstep::checkers {
namespace {

bool same_operation(const Knot& knot, const BlockedOn& wait) {
  if (knot.group != wait.group || history::is_point_to_point(knot.call->op) ||
      history::is_point_to_point(wait.call->op))
    return knot.call == wait.call;
  return knot.call->seq == wait.call->seq;
}

}  // namespace

std::vector<Knot> knots_of(const std::vector<BlockedOn>& waits) {
  std::vector<Knot> knots;
  for (const BlockedOn& wait : waits) {
    if (wait.group == nullptr)
      continue;
    auto knot = std::find_if(knots.begin(), knots.end(),
                             [&](const Knot& k) { return same_operation(k, wait); });
    if (knot == knots.end()) {
      knots.push_back({wait.group, wait.call, {}, {}, {}, {}, kNeverNs});
      knot = std::prev(knots.end());
    }
    knot->waiting.insert(wait.rank);
    knot->since_ns = std::min(knot->since_ns, wait.call->issued_ns);
    for (const Rank rank : wait.absent)
      knot->absent.insert(rank);
    for (const Rank rank : wait.incompatible)
      knot->incompatible.insert(rank);
    for (const Rank rank : wait.broken)
      knot->broken.insert(rank);
  }
  std::stable_sort(knots.begin(), knots.end(), [](const Knot& a, const Knot& b) {
    if (a.group == b.group && !history::is_point_to_point(a.call->op) &&
        !history::is_point_to_point(b.call->op))
      return a.call->seq < b.call->seq;
    return a.since_ns < b.since_ns;
  });
  return knots;
}

}  // namespace lockstep::checkers
