// What Writer says of groups that are about to be created, and of calls that were set aside;
// included by writer.h only.
#pragma once

#pragma GCC visibility push(hidden)

namespace lockstep::history {

inline bool Writer::begun() const noexcept {
  return !inherited() && __atomic_load_n(&volatile_->state, __ATOMIC_ACQUIRE) == kReady;
}

inline void Writer::begin_creation(const CreationInfo& info) noexcept {
  if (!begun())
    return;
  const QuietCall quiet;
  lock(volatile_->define_lock);
  CreationRecord record{};
  record.at_ns = clock_ns(CLOCK_MONOTONIC);
  record.store = info.store;
  record.name = definitions_.add_string(info.name, std::strlen(info.name));
  record.site = info.site;
  record.size = info.size;
  record.my_rank = info.my_rank;
  definitions_.add_creation(record, info.ranks, info.ranks == nullptr ? 0 : info.rank_count);
  unlock(volatile_->define_lock);
}

inline void Writer::set_aside(const char* op, std::uint32_t calls) noexcept {
  if (!begun())
    return;
  const QuietCall quiet;
  lock(volatile_->define_lock);
  const std::uint32_t name = definitions_.add_string(op, std::strlen(op));
  definitions_.add_set_aside({clock_ns(CLOCK_MONOTONIC), name, calls});
  unlock(volatile_->define_lock);
}

}  // namespace lockstep::history

#pragma GCC visibility pop
