#include "harness/launch/lineage.h"

#include <unistd.h>

#include <algorithm>

#include "harness/base/clock.h"
#include "harness/history/journal.h"
#include "harness/launch/rank_environment.h"
#include "harness/os/awaited.h"
#include "harness/os/kernel_objects.h"
#include "harness/os/sockets.h"

namespace lockstep::launch {
namespace {

constexpr std::uint64_t kUnwaitedNs = 1'000'000'000;
// Of a rank that nobody had asked for when its parent went. It is looked at every 0.25 s.
constexpr std::uint64_t kUnwaitedRankNs = 300'000'000;

}  // namespace

Lineage::Relative& Lineage::relative(const os::ProcessStat& process) {
  const auto [at, is_new] = relatives_.try_emplace(process.id);
  Relative& relative = at->second;
  if (is_new) {
    // Of one that was adopted already, the parent it had is not known.
    if (process.parent != ::getpid()) {
      relative.parent = process.parent;
      if (const auto parent = os::read_process(process.parent))
        relative.parent_name = parent->name;
    }
    parents_[process.id.pid] = relative.parent;
    start_ticks_[process.id.pid] = process.id.start_ticks;
  }
  if (!process.zombie() || relative.name.empty())
    relative.name = process.name;  // As of its last exec.
  relative.seen = true;
  return relative;
}

void Lineage::see(const std::vector<os::ProcessStat>& family, const RankOf& rank_of) {
  for (auto& [id, relative] : relatives_)
    relative.seen = false;
  for (const os::ProcessStat& process : family)
    relative(process);
  // They come by pid, and pids start again from below: a child may come before its parent.
  for (bool found = true; found;) {
    found = false;
    for (const os::ProcessStat& process : family)
      found = finds_rank(process.id, rank_of) || found;
  }
  for (const os::ProcessStat& process : family) {
    if (process.zombie())
      see_zombie(relatives_.at(process.id), process);
  }
  for (auto at = relatives_.begin(); at != relatives_.end();) {
    if (!at->second.seen)
      close(at->first, at->second, /*taken=*/true);
    at = at->second.seen ? std::next(at) : relatives_.erase(at);
  }
}

bool Lineage::finds_rank(const os::ProcessId& id, const RankOf& rank_of) {
  Relative& one = relatives_.at(id);
  if (one.is_rank)
    return false;
  // One that its parent started may be known as a rank later than that.
  if (const std::optional<Rank> own = rank_of(id)) {
    one.rank = own;
    one.is_rank = true;
    ranks_[id.pid] = *own;
    return true;
  }
  if (one.rank)
    return false;
  for (auto parent = relatives_.begin(); !one.rank && parent != relatives_.end(); ++parent) {
    if (parent->first.pid == one.parent && parent->second.seen)
      one.rank = parent->second.rank;
  }
  if (one.rank)
    ranks_[id.pid] = *one.rank;
  return one.rank.has_value();
}

void Lineage::see_zombie(Relative& relative, const os::ProcessStat& process) {
  if (process.parent == ::getpid()) {  // Its parent is gone, and it is about to be reaped by us.
    close(process.id, relative, /*taken=*/false);
    relative.zombie_since_ns = 0;
    return;
  }
  relative.zombie_until_ns = now_ns();
  if (relative.zombie_since_ns == 0)
    relative.zombie_since_ns = relative.zombie_until_ns;
  relative.parent = process.parent;
  relative.parent_waits_for = os::waits_for_child(process.parent);
}

void Lineage::close(const os::ProcessId& id, const Relative& relative, bool taken) {
  const std::uint64_t least_ns = relative.is_rank && !taken ? kUnwaitedRankNs : kUnwaitedNs;
  if (journal_ == nullptr || relative.zombie_since_ns == 0 ||
      relative.zombie_until_ns < relative.zombie_since_ns + least_ns)
    return;
  // A record that cannot be written is seen as a gap by the reader.
  (void)journal_->append(Unwaited{.at_ns = relative.zombie_until_ns,
                                  .since_ns = relative.zombie_since_ns,
                                  .pid = id.pid,
                                  .name = relative.name,
                                  .rank = relative.rank,
                                  .parent = relative.parent,
                                  .parent_name = relative.parent_name,
                                  .taken = taken,
                                  .parent_waits_for = relative.parent_waits_for});
}

void Lineage::finish() {
  for (auto& [id, relative] : relatives_) {
    close(id, relative, /*taken=*/false);
    relative.zombie_since_ns = 0;
  }
}

std::optional<Rank> Lineage::rank_of(std::int32_t pid) const {
  const auto at = ranks_.find(pid);
  return at == ranks_.end() ? std::nullopt : std::optional(at->second);
}

bool Lineage::descends_from_a_rank(std::int32_t pid) const {
  auto at = parents_.find(pid);
  // A recycled pid could make a loop, so the climb is bounded.
  for (std::size_t steps = 0; at != parents_.end() && steps < parents_.size(); ++steps) {
    if (ranks_.contains(at->second))
      return true;
    at = parents_.find(at->second);
  }
  return false;
}

std::vector<Ancestor> Lineage::lineage_of(const os::ProcessId& id) const {
  constexpr std::size_t kAncestorsMax = 16;  // A pid that was given again could make a loop.
  std::vector<Ancestor> lineage{{id.pid, os::monotonic_ns_of(id.start_ticks)}};
  for (auto at = parents_.find(id.pid); at != parents_.end() && lineage.size() < kAncestorsMax;) {
    const std::int32_t parent = at->second;
    const auto started = start_ticks_.find(parent);
    if (started == start_ticks_.end() || started->second > start_ticks_.at(at->first))
      break;
    lineage.push_back({parent, os::monotonic_ns_of(started->second)});
    at = parents_.find(parent);
  }
  return lineage;
}

Leftover Lineage::describe(const os::ProcessStat& process) const {
  Leftover left{.at_ns = now_ns(), .kind = "process", .pid = process.id.pid};
  left.name = os::command_line(process.id.pid);
  left.ports = os::listening_on(process.id.pid);
  left.gpus = os::gpus_among(os::descriptor_targets(process.id.pid));
  if (const auto known = relatives_.find(process.id); known != relatives_.end()) {
    left.rank = known->second.rank;
    left.parent = known->second.parent;
    left.parent_name = known->second.parent_name;
  }
  left.lineage = lineage_of(process.id);
  const auto told = told_number(process.id.pid, "RANK");
  // Says nothing where all that we start is told so.
  if (!left.rank && told && *told >= 0 && told != told_number(::getpid(), "RANK"))
    left.rank = Rank{*told};
  return left;
}

}  // namespace lockstep::launch
