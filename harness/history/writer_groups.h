// The bodies of Writer that write the group table; included by writer.h only.
#pragma once

#pragma GCC visibility push(hidden)

namespace lockstep::history {

inline GroupHandle Writer::define_group(const GroupInfo& info) noexcept {
  if (!ready())
    return {};
  const QuietCall quiet;
  lock(volatile_->define_lock);
  const std::uint32_t index = group_count_;
  if (index >= WriterFile::kGroupsMax) {
    drop(&FileHeader::dropped_groups);
    unlock(volatile_->define_lock);
    return {};
  }
  GroupEntry& group = groups_[index];
  describe_group(index, info);
  group.created_ns = clock_ns(CLOCK_MONOTONIC);
  group.commit = index + 1;
  if (index < file_.header->groups_capacity)
    write_group(index);
  __atomic_store_n(&group_count_, index + 1, __ATOMIC_RELEASE);
  unlock(volatile_->define_lock);
  return {index};
}

/// Everything but what only grows.
inline void Writer::describe_group(std::uint32_t index, const GroupInfo& info) noexcept {
  GroupEntry& group = groups_[index];
  const std::size_t length = std::strlen(info.name);
  std::memset(group.name, 0, sizeof group.name);
  std::memcpy(group.name, info.name, length < sizeof group.name ? length : sizeof group.name - 1);
  group.flags = (info.from_creation ? kSeenFromCreation : kMetLate) |
                (info.ranks != nullptr ? kRanksKnown : 0U) |
                (info.named_by_store ? kNamedByStore : 0U);
  if (length >= sizeof group.name) {  // Long names that differ must stay different.
    std::snprintf(group.name + sizeof group.name - 17, 17, "%016llx",
                  static_cast<unsigned long long>(hash_bytes(info.name, length)));
    group.flags |= kNameTruncated;
  }
  group.generation = 0;
  for (std::uint32_t i = 0; i < index; ++i)
    group.generation += std::strcmp(groups_[i].name, group.name) == 0 ? 1 : 0;
  group.size = info.size;
  group.my_rank = info.my_rank;
  group.site = info.site;
  group.timeout_ms = info.timeout_ms;
  group.store = info.store;
  group.rank_count = info.ranks != nullptr ? info.rank_count : 0;
  for (std::uint32_t i = 0; i < group.rank_count && group.rank_count <= kInlineRanks; ++i)
    group.ranks[i] = info.ranks[i];
  if (group.rank_count > kInlineRanks &&
      !definitions_.add_group_ranks(index, info.ranks, info.rank_count))
    group.flags &= ~std::uint32_t{kRanksKnown};
}

inline void Writer::redefine_group(GroupHandle group, const GroupInfo& info) noexcept {
  if (!ready() || group.index >= __atomic_load_n(&group_count_, __ATOMIC_ACQUIRE))
    return;
  const QuietCall quiet;
  lock(volatile_->define_lock);
  GroupEntry& mine = groups_[group.index];
  describe_group(group.index, info);
  ++mine.renamed;
  if (group.index < file_.header->groups_capacity) {
    GroupEntry& told = entry(group.index);  // The rest of it goes on, or stays as it is.
    told.generation = mine.generation;
    told.size = mine.size;
    told.my_rank = mine.my_rank;
    told.site = mine.site;
    told.rank_count = mine.rank_count;
    told.timeout_ms = mine.timeout_ms;
    told.store = mine.store;
    std::memcpy(told.name, mine.name, sizeof told.name);
    std::memcpy(told.ranks, mine.ranks, sizeof told.ranks);
    set_flags(group, mine.flags, ~(mine.flags | std::uint32_t{kInside}));
    __atomic_store_n(&told.renamed, mine.renamed, __ATOMIC_RELEASE);
  }
  unlock(volatile_->define_lock);
}

inline void Writer::write_group(std::uint32_t index) noexcept {
  GroupEntry& target = entry(index);
  GroupEntry copy = groups_[index];
  copy.commit = 0;
  std::memcpy(static_cast<void*>(&target), &copy, sizeof copy);
  __atomic_store_n(&target.commit, std::uint64_t{index} + 1, __ATOMIC_RELEASE);
  __atomic_store_n(&file_.header->groups_used, std::uint64_t{index} + 1, __ATOMIC_RELEASE);
}

inline GroupEntry& Writer::entry(std::uint32_t group) noexcept {
  return reinterpret_cast<GroupEntry*>(file_.base + file_.header->groups_offset)[group];
}

inline void Writer::set_flags(GroupHandle group, std::uint32_t set,
                              std::uint32_t cleared) noexcept {
  // In a forked child the group is marked when its file begins.
  if (inherited() || file_.header == nullptr || group.index >= group_count_ ||
      group.index >= file_.header->groups_capacity)
    return;
  std::uint32_t& flags = entry(group.index).flags;
  __atomic_fetch_or(&flags, set, __ATOMIC_RELAXED);
  __atomic_fetch_and(&flags, ~cleared, __ATOMIC_RELEASE);
}

inline void Writer::met_late(GroupHandle group) noexcept {
  set_flags(group, kMetLate, kSeenFromCreation);
}

inline void Writer::is_inside(GroupHandle group, bool inside) noexcept {
  set_flags(group, inside ? kInside : 0U, inside ? 0U : kInside);
}

}  // namespace lockstep::history

#pragma GCC visibility pop
