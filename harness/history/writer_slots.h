// The part of Writer that knows the ring and the pending area; included by writer.h only.
#pragma once

#pragma GCC visibility push(hidden)

namespace lockstep::history {

/// Where a record lives. While the ring grows record == index; afterwards index = record % its
/// final size, which is the same for every record written before.
inline Slot* Writer::locate(std::uint64_t record, std::uint64_t& lap) noexcept {
  FileHeader& header = *file_.header;
  auto* const ring = reinterpret_cast<Slot*>(file_.base + header.ring_offset);
  for (;;) {
    const std::uint64_t size = __atomic_load_n(&header.ring_final, __ATOMIC_ACQUIRE);
    if (size != 0) {
      lap = record / size;
      return ring + (record - lap * size);
    }
    if (record < __atomic_load_n(&header.reserved_slots, __ATOMIC_ACQUIRE)) {
      lap = 0;
      return ring + record;
    }
    const QuietCall quiet;
    lock(volatile_->grow_lock);
    if (header.ring_final == 0 && record >= header.reserved_slots) {
      const bool full = header.reserved_slots == header.ring_capacity;
      const int error = full ? 0 : file_.grow();
      header.growth_errno = static_cast<std::uint64_t>(error);
      if (full || error != 0)
        __atomic_store_n(&header.ring_final, header.reserved_slots, __ATOMIC_RELEASE);
    }
    unlock(volatile_->grow_lock);
  }
}

/// Makes the slot of a new record writable: commit word zero, stamps empty. False if its last
/// record is still being written, by a thread that has not run for a whole lap.
inline bool Writer::take_slot(Ticket& ticket) noexcept {
  Slot& slot = *(ticket.slot = locate(ticket.record, ticket.lap));
  if (ticket.lap > 0) {
    const std::uint64_t before = ticket.record + 1 - file_.header->ring_final;
    std::uint64_t commit = __atomic_load_n(&slot.commit, __ATOMIC_ACQUIRE);
    for (int i = 0; commit != before && i < 1000; ++i) {
      sched_yield();
      commit = __atomic_load_n(&slot.commit, __ATOMIC_ACQUIRE);
    }
    if (commit == 0)
      return false;
    retire(slot, ticket.lap);
    return true;
  }
  __atomic_store_n(&slot.returned, empty_stamp(0), __ATOMIC_RELAXED);
  __atomic_store_n(&slot.completed, empty_stamp(0), __ATOMIC_RELAXED);
  return true;
}

inline bool Writer::is_open(const Slot& slot) noexcept {
  return stamp_delta(__atomic_load_n(&slot.returned, __ATOMIC_ACQUIRE)) == 0 ||
         stamp_delta(__atomic_load_n(&slot.completed, __ATOMIC_ACQUIRE)) == 0;
}

/// Zero is seen before anything that is written after it. (An exchange, since ThreadSanitizer knows
/// no fences.)
inline void Writer::begin_writing(std::uint64_t& commit) noexcept {
  __atomic_exchange_n(&commit, 0, __ATOMIC_ACQ_REL);
}

/// Empties a slot for the next lap. What is incomplete goes to the pending area first, where a kill
/// leaves it and its completion finds it.
inline void Writer::retire(Slot& slot, std::uint64_t lap) noexcept {
  if (!is_open(slot)) {
    begin_writing(slot.commit);
    __atomic_store_n(&slot.returned, empty_stamp(lap), __ATOMIC_RELAXED);
    __atomic_store_n(&slot.completed, empty_stamp(lap), __ATOMIC_RELAXED);
    return;
  }
  lock(volatile_->pending_lock);
  Slot* const target = free_pending();
  if (target != nullptr) {
    begin_writing(target->commit);
    const std::uint64_t commit = slot.commit;
    target->returned = __atomic_load_n(&slot.returned, __ATOMIC_ACQUIRE);
    target->completed = __atomic_load_n(&slot.completed, __ATOMIC_ACQUIRE);
    std::memcpy(reinterpret_cast<char*>(target) + offsetof(Slot, issued_ns),
                reinterpret_cast<const char*>(&slot) + offsetof(Slot, issued_ns),
                sizeof(Slot) - offsetof(Slot, issued_ns));
    __atomic_store_n(&target->commit, commit, __ATOMIC_RELEASE);
  }
  begin_writing(slot.commit);
  // A stamp that came between the copy and now is carried over; a later one fails here and takes
  // the lock.
  const std::uint64_t returned =
      __atomic_exchange_n(&slot.returned, empty_stamp(lap), __ATOMIC_ACQ_REL);
  const std::uint64_t completed =
      __atomic_exchange_n(&slot.completed, empty_stamp(lap), __ATOMIC_ACQ_REL);
  if (target != nullptr) {
    __atomic_store_n(&target->returned, returned, __ATOMIC_RELEASE);
    __atomic_store_n(&target->completed, completed, __ATOMIC_RELEASE);
  }
  unlock(volatile_->pending_lock);
}

/// An entry that is free or done; else the next one whose call has returned; else none.
inline Slot* Writer::free_pending() noexcept {
  FileHeader& header = *file_.header;
  auto* const pending = reinterpret_cast<Slot*>(file_.base + header.pending_offset);
  const auto capacity = static_cast<std::uint32_t>(header.pending_capacity);
  Slot* second_best = nullptr;
  for (std::uint32_t i = 0; i < capacity; ++i) {
    Slot& candidate = pending[(volatile_->pending_next + i) % capacity];
    const bool free = candidate.commit == 0 || !is_open(candidate);
    if (free || (second_best == nullptr && stamp_delta(candidate.returned) != 0))
      second_best = &candidate;
    if (free)
      break;
  }
  if (second_best == nullptr || (second_best->commit != 0 && is_open(*second_best)))
    drop(&FileHeader::dropped_pending);
  if (second_best != nullptr)
    volatile_->pending_next = static_cast<std::uint32_t>(second_best - pending + 1) % capacity;
  return second_best;
}

inline std::uint64_t Writer::stamp_now(const Ticket& ticket, bool error) noexcept {
  return stamp(ticket.lap, error, clock_ns(CLOCK_MONOTONIC) - ticket.issued_ns);
}

/// True if the stamp was set, or its record is gone: then it is counted all the same.
inline bool Writer::set_stamp(const Ticket& ticket, std::uint64_t Slot::*word,
                              std::uint64_t value) noexcept {
  std::uint64_t expected = empty_stamp(ticket.lap);
  if (!__atomic_compare_exchange_n(&(ticket.slot->*word), &expected, value, false, __ATOMIC_RELEASE,
                                   __ATOMIC_RELAXED)) {
    if (expected >> 49 == value >> 49)
      return false;  // Said twice.
    lock(volatile_->pending_lock);
    const bool counts = set_pending(ticket.record, word, value);
    unlock(volatile_->pending_lock);
    if (!counts)
      return false;
  }
  if (stamp_delta(value) == kStampNeverTold)
    return true;  // It stays one that has not completed.
  GroupEntry& totals = entry(ticket.group);
  const bool returned = word == &Slot::returned;
  std::uint64_t& total = ticket.point_to_point
                             ? (returned ? totals.p2p_returned : totals.p2p_completed)
                             : (returned ? totals.returned : totals.completed);
  __atomic_fetch_add(&total, 1, __ATOMIC_RELEASE);
  return true;
}

inline bool Writer::set_pending(std::uint64_t record, std::uint64_t Slot::*word,
                                std::uint64_t value) noexcept {
  FileHeader& header = *file_.header;
  auto* const pending = reinterpret_cast<Slot*>(file_.base + header.pending_offset);
  for (std::uint64_t i = 0; i < header.pending_capacity; ++i) {
    if (pending[i].commit != record + 1)
      continue;
    if (stamp_delta(pending[i].*word) != 0)
      return false;
    __atomic_store_n(&(pending[i].*word), value, __ATOMIC_RELEASE);
    return true;
  }
  return true;
}

}  // namespace lockstep::history

#pragma GCC visibility pop
