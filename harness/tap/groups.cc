#include "harness/tap/groups.h"

#include <numeric>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

#include "harness/tap/store_keys.h"

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

constexpr std::uint64_t kNoCounter = ~std::uint64_t{0};
constexpr std::uintptr_t kGone = 1;  // In the place of a backend whose address another one has.

/// The default one, or the only one where it names none; else null. The group keeps it.
c10d::Backend* backend_of(c10d::ProcessGroup& group) {
  try {
    if (group.getBackendType() != c10d::ProcessGroup::BackendType::UNDEFINED)
      return group.getDefaultBackend().get();
    c10d::Backend* only = nullptr;
    for (const c10::Device device : group.getDeviceTypes()) {
      c10d::Backend* const backend = group.getBackend(device.type()).get();
      if (only != nullptr && only != backend)
        return nullptr;
      only = backend;
    }
    return only;
  } catch (const std::exception&) {
    return nullptr;
  }
}

/// How long it lets a wait last that is given no limit; 0 = not known.
std::int64_t timeout_ms(c10d::Backend* backend) {
  try {
    return backend == nullptr ? 0 : backend->getBackendOptions()->timeout.count();
  } catch (const std::exception&) {
    return 0;
  }
}

/// Without a counter nobody can say whether something went past the tap.
std::uint64_t sequence_of(c10d::Backend* backend) {
  try {
    return backend == nullptr ? kNoCounter : backend->getSequenceNumberForGroup();
  } catch (const std::exception&) {
    return kNoCounter;
  }
}

/// A group may come to lie where a backend was.
const void* key_of(const c10d::Backend* backend) {
  return reinterpret_cast<const char*>(backend) + 1;
}

}  // namespace

Groups::Entry* Groups::find(const void* key) {
  for (std::size_t i = 0, at = reinterpret_cast<std::uintptr_t>(key) / 64; i < kSlots; ++i, ++at) {
    Entry& entry = table_[at % kSlots];
    const void* const have = entry.key.load(std::memory_order_acquire);
    if (have == key || have == nullptr)
      return &entry;
  }
  return nullptr;
}

Groups::Known* Groups::known_at(const void* key) {
  Entry* const entry = find(key);
  return entry == nullptr || entry->key.load(std::memory_order_relaxed) == nullptr
             ? nullptr
             : entry->known.load(std::memory_order_acquire);
}

void Groups::remember(const void* key, Known* known) {
  Entry* const entry = find(key);
  if (entry == nullptr)
    return;
  const bool is_new = entry->key.load(std::memory_order_relaxed) == nullptr;
  if (is_new && used_ >= kSlots / 2)
    return;
  used_ += is_new ? 1 : 0;
  entry->known.store(known, std::memory_order_release);
  entry->key.store(key, std::memory_order_release);
}

Groups::Known* Groups::fresh() { return all_used_ < kKnownMax ? &all_[all_used_++] : nullptr; }

/// It was that of a group, whose backend is another one now: what calls it still is that one, be it
/// in a thread of its own, and the group's calls are told already.
bool Groups::was_replaced(const Known& known, const c10d::Backend& backend) {
  const c10d::Backend* const now = known.backend.load(std::memory_order_relaxed);
  return !known.alone.load(std::memory_order_relaxed) && now != &backend && now != nullptr &&
         reinterpret_cast<std::uintptr_t>(now) != kGone && known.size == backend.getSize();
}

Groups::Known* Groups::enter(c10d::ProcessGroup& group) {
  Known* known = known_at(&group);
  c10d::Backend* backend = nullptr;
  if (known == nullptr || known->backend.load(std::memory_order_relaxed) != nullptr)
    backend = backend_of(group);
  if (known == nullptr || known->backend.load(std::memory_order_relaxed) != backend)
    known = meet(group, backend);
  if (known != nullptr && !come_in(*known, backend)) {
    const std::lock_guard<std::mutex> lock(mutex_);
    define(group, backend, /*site=*/0);  // At the address of one that is gone.
  }
  return known;
}

Groups::Known* Groups::enter(c10d::Backend& backend) {
  Known* known = known_at(key_of(&backend));
  const auto is_known = [&] {
    return known != nullptr && known->backend.load(std::memory_order_acquire) == &backend &&
           known->size == backend.getSize();
  };
  if (!is_known()) {
    const std::lock_guard<std::mutex> lock(mutex_);
    known = known_at(key_of(&backend));
    if (known != nullptr && was_replaced(*known, backend))
      return nullptr;
    if (!is_known())
      known = define(backend, nullptr, /*seen=*/true, /*site=*/0);
  }
  if (known == nullptr)
    return nullptr;
  if (!come_in(*known, &backend)) {
    const std::lock_guard<std::mutex> lock(mutex_);
    known->inside.fetch_sub(1, std::memory_order_release);
    known = define(backend, nullptr, /*seen=*/true, /*site=*/0);
    if (known == nullptr)
      return nullptr;
    known->inside.fetch_add(1, std::memory_order_acquire);
  }
  if (!known->used.exchange(true, std::memory_order_relaxed) &&
      known->part.load(std::memory_order_relaxed)) {
    writer_.is_inside({known->handle.load(std::memory_order_relaxed)}, false);
    writer_.met_late({known->handle.load(std::memory_order_relaxed)});
  }
  return known;
}

/// False: it is not the one that was known, but a new one. Inside it is the caller all the same.
bool Groups::come_in(Known& known, c10d::Backend* backend) {
  const bool alone = known.inside.fetch_add(1, std::memory_order_acquire) == 0;
  if (!alone || !known.counts.load(std::memory_order_relaxed))
    return true;  // Where threads overlap nobody can say what the counter should be.
  const std::uint64_t sequence = sequence_of(backend);
  if (sequence == known.expected.load(std::memory_order_relaxed))
    return true;
  if (sequence == 0)
    return false;
  writer_.met_late({known.handle.load(std::memory_order_relaxed)});
  known.expected.store(sequence, std::memory_order_relaxed);
  return true;
}

void Groups::leave(Known& known) {
  if (known.counts.load(std::memory_order_relaxed)) {
    const std::uint64_t sequence =
        sequence_of(const_cast<c10d::Backend*>(known.backend.load(std::memory_order_relaxed)));
    std::uint64_t expected = known.expected.load(std::memory_order_relaxed);
    while (sequence != kNoCounter && expected < sequence &&
           !known.expected.compare_exchange_weak(expected, sequence, std::memory_order_relaxed)) {
    }
  }
  known.inside.fetch_sub(1, std::memory_order_release);
}

void Groups::used_inside(const c10d::Backend& backend) {
  Known* const known = candidate(&backend);
  if (known == nullptr || known->part.exchange(true, std::memory_order_relaxed))
    return;
  if (known->used.load(std::memory_order_relaxed))
    writer_.met_late({known->handle.load(std::memory_order_relaxed)});
  else
    writer_.is_inside({known->handle.load(std::memory_order_relaxed)}, true);
}

/// What is known of a backend that has no group around it, so far.
Groups::Known* Groups::candidate(const c10d::Backend* backend) {
  Known* const known = backend == nullptr ? nullptr : known_at(key_of(backend));
  return known != nullptr && known->alone.load(std::memory_order_relaxed) &&
                 known->backend.load(std::memory_order_relaxed) == backend
             ? known
             : nullptr;
}

Groups::Known* Groups::meet(c10d::ProcessGroup& group, c10d::Backend* backend) {
  const std::lock_guard<std::mutex> lock(mutex_);
  Known* const known = known_at(&group);
  const c10d::Backend* const had =
      known == nullptr ? nullptr : known->backend.load(std::memory_order_relaxed);
  if (known != nullptr && had == backend)
    return known;
  const std::uint64_t sequence = sequence_of(backend);
  const bool same = known != nullptr && reinterpret_cast<std::uintptr_t>(had) != kGone &&
                    candidate(backend) == nullptr && sequence != 0;
  if (!same)
    return define(group, backend, /*site=*/0);
  // Its backend was replaced: one that goes on counting where the other was has missed nothing.
  if (sequence != known->expected.load(std::memory_order_relaxed))
    writer_.met_late({known->handle.load(std::memory_order_relaxed)});
  known->counts.store(sequence != kNoCounter, std::memory_order_relaxed);
  known->expected.store(sequence, std::memory_order_relaxed);
  known->backend.store(backend, std::memory_order_relaxed);
  return known;
}

void Groups::created(c10d::ProcessGroup& group, std::uint32_t site) {
  const std::lock_guard<std::mutex> lock(mutex_);
  define(group, backend_of(group), site);
}

void Groups::created(c10d::Backend& backend, c10d::Store& store, bool seen, std::uint32_t site) {
  const std::lock_guard<std::mutex> lock(mutex_);
  Known* const old = known_at(key_of(&backend));
  if (old != nullptr && old->backend.load(std::memory_order_relaxed) == &backend)
    old->backend.store(reinterpret_cast<const c10d::Backend*>(kGone), std::memory_order_relaxed);
  define(backend, &store, seen, site);
}

Groups::Known* Groups::define(c10d::ProcessGroup& group, c10d::Backend* backend,
                              std::uint32_t site) {
  Known* const before = candidate(backend);
  Known* known = before != nullptr ? before : known_at(&group);
  if (known == nullptr)
    known = fresh();
  if (known == nullptr)
    return nullptr;
  const std::uint64_t sequence = sequence_of(backend);
  const bool whole = before != nullptr ? before->whole && sequence == 0 &&
                                             !before->used.load(std::memory_order_relaxed)
                                       : sequence == 0;
  take_name(group, *known);
  const std::vector<std::int32_t> ranks =
      global_ranks(group, world_size_.load(std::memory_order_relaxed));
  history::GroupInfo info;
  info.name = known->name.c_str();
  info.size = known->size = group.getSize();
  info.my_rank = group.getRank();
  info.named_by_store = known->store != 0;
  info.store = known->store;
  info.ranks = ranks.empty() || info.named_by_store ? nullptr : ranks.data();
  info.rank_count = static_cast<std::uint32_t>(ranks.size());
  info.site = site;
  info.timeout_ms = timeout_ms(backend);
  info.from_creation = whole;
  if (before != nullptr)
    writer_.redefine_group({known->handle.load(std::memory_order_relaxed)}, info);
  else
    known->handle.store(writer_.define_group(info).index, std::memory_order_relaxed);
  known->counts.store(sequence != kNoCounter, std::memory_order_relaxed);
  known->expected.store(sequence, std::memory_order_relaxed);
  known->backend.store(backend, std::memory_order_relaxed);
  known->alone.store(false, std::memory_order_relaxed);
  remember(&group, known);
  if (backend != nullptr)
    remember(key_of(backend), known);
  take_other_backends(group, *known);
  return known;
}

/// Where it has none, and its backend was met before, that of where its members met.
void Groups::take_name(c10d::ProcessGroup& group, Known& known) {
  const bool by_store = known.alone.load(std::memory_order_relaxed) && known.store != 0;
  try {
    const std::string& name = group.getGroupName();
    if (!name.empty() || !by_store) {
      known.name = name;
      known.store = 0;
    }
    // As Python's init_process_group calls its group; what the environment says may be another's.
    // Where it says nothing, the first group is taken for the world.
    if (group.getGroupDesc() == "default_pg" || world_size_.load(std::memory_order_relaxed) == 0) {
      writer_.set_rank(group.getRank(), group.getSize());
      set_world(group.getSize());
    }
  } catch (const std::exception&) {
    known.name.clear();
    known.store = 0;
  }
}

/// A world of one says nothing of who else is there.
void Groups::take_rank(std::int32_t rank, std::int32_t size) {
  const std::int32_t world = world_size_.load(std::memory_order_relaxed);
  if (world > 1 || size <= world)
    return;
  writer_.set_rank(rank, size);
  set_world(size);
}

/// One for each kind of device: what is called on them is told by the group.
void Groups::take_other_backends(c10d::ProcessGroup& group, const Known& known) {
  try {
    for (const c10::Device device : group.getDeviceTypes()) {
      Known* const other = candidate(group.getBackend(device.type()).get());
      if (other != nullptr && other != &known && !other->part.exchange(true))
        writer_.is_inside({other->handle.load(std::memory_order_relaxed)}, true);
    }
  } catch (const std::exception&) {
    // One of them is not there (yet).
  }
}

Groups::Known* Groups::define(c10d::Backend& backend, c10d::Store* store, bool seen,
                              std::uint32_t site) {
  Known* const known = fresh();
  remember(key_of(&backend), known);
  if (known == nullptr)
    return nullptr;
  const StoreKeys keys = store == nullptr ? StoreKeys{} : keys_of(*store);
  const std::uint64_t sequence = sequence_of(&backend);
  known->whole = store != nullptr && sequence == 0;
  known->name = keys.prefix;
  known->store = keys.store;
  known->size = backend.getSize();
  take_rank(backend.getRank(), backend.getSize());
  history::GroupInfo info;
  info.name = known->name.c_str();
  info.size = known->size;
  info.my_rank = backend.getRank();
  info.named_by_store = true;
  info.store = known->store;
  info.site = site;
  info.timeout_ms = timeout_ms(&backend);
  info.from_creation = known->whole && seen;
  known->handle.store(writer_.define_group(info).index, std::memory_order_relaxed);
  known->counts.store(sequence != kNoCounter, std::memory_order_relaxed);
  known->expected.store(sequence, std::memory_order_relaxed);
  known->alone.store(true, std::memory_order_relaxed);
  known->backend.store(&backend, std::memory_order_release);
  return known;
}

}  // namespace lockstep::tap
