#include "checkers/hang/recorded_blame.h"

#include <algorithm>
#include <map>

#include "checkers/hang/issue_order.h"

namespace lockstep::checkers {
namespace {

std::size_t size_of(const RecordedWait& wait) {
  return wait.to_one ? 2 : static_cast<std::size_t>(std::max(wait.group->size, 0));
}

RankSet joined(RankSet a, const RankSet& b) {
  for (const Rank rank : b)
    a.insert(rank);
  return a;
}

}  // namespace

RankSet common(const RankSet& a, const RankSet& b) { return a.minus(a.minus(b)); }

bool is_few(const RecordedWait& wait, const RankSet& ranks) {
  return size_of(wait) > 2 && 2 * ranks.size() < size_of(wait);
}

RankSet convicted(const RecordedGraph& graph, const RankSet& roots) {
  RankSet culprits;
  std::map<std::int32_t, RankSet> waiters;
  for (const RecordedWait& wait : graph.waits()) {
    const RankSet owing = common(wait.owing(), roots);
    for (const Rank rank : owing) {
      if (is_few(wait, wait.owing()))
        culprits.insert(rank);
      if (wait.owing().size() == 1) {
        for (const Rank waiter : wait.waiting)
          waiters[rank.value].insert(waiter);
      }
    }
  }
  for (const auto& [rank, others] : waiters) {
    if (others.size() > 1)
      culprits.insert(Rank{rank});
  }
  return culprits;
}

bool is_only_idle(const Run& run, const RecordedGraph& graph, const RankSet& roots) {
  return roots.size() == 1 && !graph.waits(*roots.begin()) && run.processes.size() > 3 &&
         std::all_of(run.processes.begin(), run.processes.end(), [&](const Process& process) {
           return roots.contains(*process.rank) || graph.waits(*process.rank);
         });
}

RankSet went_past(const Run& run, const RecordedGraph& graph, bool supposed) {
  const IssueOrder order(run);
  RankSet passed;
  for (const RecordedWait& wait : graph.waits()) {
    if (wait.to_one || (wait.supposed && !supposed) || wait.differs)
      continue;
    for (const Rank rank : wait.owing()) {
      if (!passed.contains(rank) && order.went_past(rank, wait))
        passed.insert(rank);
    }
  }
  return passed;
}

RankSet unexplained_in(const RecordedGraph& graph, const RankSet& circle) {
  for (const bool by_hosts : {true, false}) {
    std::vector<const RecordedWait*> waits;
    RankSet few, explained;
    for (const RecordedWait& wait : graph.waits()) {
      const RankSet owing = common(wait.owing(), circle);
      if (owing.empty() || common(wait.running, circle).empty() || wait.supposed)
        continue;
      // Of two, each may be the one who should have come first.
      if (2 * wait.owing().size() == size_of(wait))
        explained = joined(explained, wait.running);
      if (wait.absent.empty() == by_hosts || !is_few(wait, wait.owing()))
        continue;
      waits.push_back(&wait);
      for (const Rank rank : owing)
        few.insert(rank);
    }
    RankSet left = few.minus(explained);
    for (const RecordedWait* const wait : waits)
      left = by_hosts ? left : left.minus(wait->running);
    const bool one_place = std::any_of(waits.begin(), waits.end(), [&](const RecordedWait* wait) {
      return left.minus(wait->owing()).empty();
    });
    if (!few.empty())
      return one_place ? left : RankSet{};
  }
  return {};
}

}  // namespace lockstep::checkers
