#include "harness/tap/groups.h"

#include <numeric>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <vector>

namespace lockstep::tap {
namespace {

// Global ranks by group rank, as far as the backend was told; empty if not known.
std::vector<std::int32_t> global_ranks(c10d::ProcessGroup& group, std::int32_t world_size) {
  std::vector<std::int32_t> ranks;
  try {
    for (const std::uint64_t rank :
         group.getDefaultBackend()->getBackendOptions()->global_ranks_in_group)
      ranks.push_back(static_cast<std::int32_t>(rank));
  } catch (const std::exception&) {
    // A backend without options: told nothing.
  }
  if (ranks.empty() && world_size > 0 && group.getSize() == world_size) {
    ranks.resize(static_cast<std::size_t>(world_size));
    std::iota(ranks.begin(), ranks.end(), 0);  // All of them, and groups list their ranks in order.
  }
  if (ranks.size() != static_cast<std::size_t>(group.getSize()))
    ranks.clear();
  return ranks;
}

/// How long its backend lets a wait last that is given no limit; 0 = not known.
std::int64_t timeout_ms(c10d::ProcessGroup& group) {
  try {
    return group.getDefaultBackend()->getBackendOptions()->timeout.count();
  } catch (const std::exception&) {
    return 0;
  }
}

constexpr std::uint64_t kNoCounter = ~std::uint64_t{0};

/// Of its backend; without one nobody can say whether something went past the tap.
std::uint64_t sequence_of(c10d::ProcessGroup& group) {
  try {
    return group.getDefaultBackend()->getSequenceNumberForGroup();
  } catch (const std::exception&) {
    return kNoCounter;
  }
}

}  // namespace

Groups::Known* Groups::find(const c10d::ProcessGroup* group) {
  for (std::size_t i = 0, at = reinterpret_cast<std::uintptr_t>(group) / 64; i < kSlots;
       ++i, ++at) {
    Known& known = table_[at % kSlots];
    const c10d::ProcessGroup* const have = known.group.load(std::memory_order_acquire);
    if (have == group)
      return &known;
    if (have == nullptr)
      return nullptr;
  }
  return nullptr;
}

Groups::Known* Groups::enter(c10d::ProcessGroup& group) {
  Known* known = find(&group);
  if (known == nullptr)
    known = meet(group);
  if (known == nullptr)
    return nullptr;
  const bool alone = known->inside.fetch_add(1, std::memory_order_acquire) == 0;
  if (!alone || !known->counts.load(std::memory_order_relaxed))
    return known;  // Where threads overlap nobody can say what the counter should be.
  const std::uint64_t sequence = sequence_of(group);
  if (sequence != known->expected.load(std::memory_order_relaxed)) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (sequence == 0)
      define(group, *known, sequence);  // Another group at the address of one that is gone.
    else
      writer_.met_late({known->handle.load(std::memory_order_relaxed)});
    known->expected.store(sequence, std::memory_order_relaxed);
  }
  return known;
}

void Groups::leave(Known& known, c10d::ProcessGroup& group) {
  if (known.counts.load(std::memory_order_relaxed)) {
    const std::uint64_t sequence = sequence_of(group);
    std::uint64_t expected = known.expected.load(std::memory_order_relaxed);
    while (sequence != kNoCounter && expected < sequence &&
           !known.expected.compare_exchange_weak(expected, sequence, std::memory_order_relaxed)) {
    }
  }
  known.inside.fetch_sub(1, std::memory_order_release);
}

Groups::Known* Groups::meet(c10d::ProcessGroup& group) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (Known* const known = find(&group))
    return known;
  Known* const known = place_for(group);
  if (known == nullptr)
    return nullptr;
  define(group, *known, sequence_of(group));
  known->group.store(&group, std::memory_order_release);
  return known;
}

void Groups::created(c10d::ProcessGroup& group, std::uint32_t site) {
  const std::lock_guard<std::mutex> lock(mutex_);
  Known* known = find(&group);
  if (known == nullptr)
    known = place_for(group);
  if (known == nullptr)
    return;
  define(group, *known, sequence_of(group), site);
  known->group.store(&group, std::memory_order_release);
}

/// A free entry of the table, or null if it is full.
Groups::Known* Groups::place_for(c10d::ProcessGroup& group) {
  if (used_ >= kSlots / 2)
    return nullptr;
  ++used_;
  std::size_t at = reinterpret_cast<std::uintptr_t>(&group) / 64;
  while (table_[at % kSlots].group.load(std::memory_order_relaxed) != nullptr)
    ++at;
  return &table_[at % kSlots];
}

void Groups::define(c10d::ProcessGroup& group, Known& known, std::uint64_t sequence,
                    std::uint32_t site) {
  known.counts.store(sequence != kNoCounter, std::memory_order_relaxed);
  try {
    known.name = group.getGroupName();
    // As Python's init_process_group calls its group; what the environment says may be another's.
    // Where it says nothing, the first group is taken for the world.
    if (group.getGroupDesc() == "default_pg" || world_size_.load(std::memory_order_relaxed) == 0) {
      writer_.set_rank(group.getRank(), group.getSize());
      set_world(group.getSize());
    }
  } catch (const std::exception&) {
    known.name.clear();
  }
  const std::vector<std::int32_t> ranks =
      global_ranks(group, world_size_.load(std::memory_order_relaxed));
  history::GroupInfo info;
  info.name = known.name.c_str();
  info.size = group.getSize();
  info.my_rank = group.getRank();
  info.ranks = ranks.empty() ? nullptr : ranks.data();
  info.rank_count = static_cast<std::uint32_t>(ranks.size());
  info.site = site;
  info.timeout_ms = timeout_ms(group);
  info.from_creation = sequence == 0;
  known.handle.store(writer_.define_group(info).index, std::memory_order_relaxed);
  known.expected.store(sequence, std::memory_order_relaxed);
}

}  // namespace lockstep::tap
