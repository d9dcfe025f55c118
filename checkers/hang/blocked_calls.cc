#include "checkers/hang/blocked_calls.h"

#include <algorithm>

namespace lockstep::checkers {
namespace {

bool same_operation(const BlockedCall& blocked, const BlockedOn& wait) {
  if (blocked.group != wait.group || history::is_point_to_point(blocked.call->op) ||
      history::is_point_to_point(wait.call->op))
    return blocked.call == wait.call;
  return blocked.call->seq == wait.call->seq;
}

}  // namespace

std::vector<BlockedCall> blocked_calls_of(const std::vector<BlockedOn>& waits) {
  std::vector<BlockedCall> calls;
  for (const BlockedOn& wait : waits) {
    if (wait.group == nullptr)
      continue;
    auto blocked = std::find_if(calls.begin(), calls.end(),
                                [&](const BlockedCall& k) { return same_operation(k, wait); });
    if (blocked == calls.end()) {
      calls.push_back({wait.group, wait.call, {}, {}, {}, {}, kNeverNs});
      blocked = std::prev(calls.end());
    }
    blocked->waiting.insert(wait.rank);
    blocked->since_ns = std::min(blocked->since_ns, wait.call->issued_ns);
    for (const Rank rank : wait.absent)
      blocked->absent.insert(rank);
    for (const Rank rank : wait.incompatible)
      blocked->incompatible.insert(rank);
    for (const Rank rank : wait.broken)
      blocked->broken.insert(rank);
  }
  std::stable_sort(calls.begin(), calls.end(), [](const BlockedCall& a, const BlockedCall& b) {
    if (a.group == b.group && !history::is_point_to_point(a.call->op) &&
        !history::is_point_to_point(b.call->op))
      return a.call->seq < b.call->seq;
    return a.since_ns < b.since_ns;
  });
  return calls;
}

}  // namespace lockstep::checkers
