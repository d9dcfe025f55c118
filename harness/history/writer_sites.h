// Call sites and strings of a Writer: seen once, written once, then found again by hash without a
// lock.
//
// Everything lies in private memory mapped up front (nothing is allocated on the heap) and outlives
// a fork: the child's addresses are its parent's, so it only has to write the same definitions into
// its own file.
#pragma once

#include <link.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>

#include "harness/history/format.h"

#pragma GCC visibility push(hidden)

namespace lockstep::history {

/// Private zeroed memory that costs nothing until touched; null if the address space is limited.
inline void* map_private(std::size_t bytes) noexcept {
  void* const memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return memory == MAP_FAILED ? nullptr : memory;
}

/// Hash to id. Lookups take no lock; insertions are made under the caller's.
class InternTable {
 public:
  static constexpr std::uint32_t kSize = 1U << 15;
  static constexpr std::uint32_t kFillMax = kSize / 4 * 3;
  static constexpr std::uint32_t kNotFound = ~0U;

  bool allocate() noexcept {
    entries_ = static_cast<Entry*>(map_private(kSize * sizeof(Entry)));
    return entries_ != nullptr;
  }
  void release() noexcept {
    if (entries_ != nullptr)
      munmap(entries_, kSize * sizeof(Entry));
    entries_ = nullptr;
  }

  [[nodiscard]] std::uint32_t find(std::uint64_t key) const noexcept {
    key |= 1;  // 0 marks a free entry
    for (std::uint32_t i = 0, at = start(key); i < kSize; ++i, at = (at + 1) % kSize) {
      const std::uint64_t have = __atomic_load_n(&entries_[at].key, __ATOMIC_ACQUIRE);
      if (have == key)
        return entries_[at].id;
      if (have == 0)
        break;
    }
    return kNotFound;
  }

  /// False if the table is full.
  bool insert(std::uint64_t key, std::uint32_t id) noexcept {
    if (used_ >= kFillMax)
      return false;
    key |= 1;
    std::uint32_t at = start(key);
    while (entries_[at].key != 0)
      at = (at + 1) % kSize;
    entries_[at].id = id;
    __atomic_store_n(&entries_[at].key, key, __ATOMIC_RELEASE);
    ++used_;
    return true;
  }

 private:
  struct Entry {
    std::uint64_t key;
    std::uint32_t id;
  };
  static std::uint32_t start(std::uint64_t key) noexcept {
    return static_cast<std::uint32_t>(mix(key, 0) >> 16) % kSize;
  }
  Entry* entries_ = nullptr;
  std::uint32_t used_ = 0;
};

/// One frame as a tap describes it; see FrameRecord.
struct SiteFrame {
  const char* module = "";
  std::uint64_t offset = 0;
  const char* function = "";
  std::int32_t line = 0;
};

/// Finds the mapped objects that return addresses belong to. The address minus one lies in the
/// call.
inline void resolve_return_addresses(const void* const* pcs, std::uint32_t count, SiteFrame* frames,
                                     char* main_path, std::size_t main_path_size) noexcept {
  struct Search {
    const void* const* pcs;
    std::uint32_t count;
    SiteFrame* frames;
    const char* main_path;
  } search{pcs, count, frames, main_path};
  const ssize_t length = readlink("/proc/self/exe", main_path, main_path_size - 1);
  main_path[length < 0 ? 0 : length] = 0;
  for (std::uint32_t i = 0; i < count; ++i)  // In no object: just-in-time code. Kept, by address.
    frames[i] = SiteFrame{"", reinterpret_cast<std::uint64_t>(pcs[i]) - 1, "", 0};
  dl_iterate_phdr(
      [](dl_phdr_info* object, std::size_t, void* data) -> int {
        auto& found = *static_cast<Search*>(data);
        for (std::uint32_t i = 0; i < found.count; ++i) {
          const std::uint64_t address = reinterpret_cast<std::uint64_t>(found.pcs[i]) - 1;
          for (int p = 0; p < object->dlpi_phnum; ++p) {
            const auto& part = object->dlpi_phdr[p];
            const std::uint64_t begin = object->dlpi_addr + part.p_vaddr;
            if (part.p_type != PT_LOAD || address < begin || address - begin >= part.p_memsz)
              continue;
            const bool is_main = object->dlpi_name == nullptr || object->dlpi_name[0] == 0;
            found.frames[i].module = is_main ? found.main_path : object->dlpi_name;
            found.frames[i].offset = address - object->dlpi_addr;
          }
        }
        return 0;
      },
      &search);
}

/// The definitions of one process: a private copy, and the area of the current file.
class Definitions {
 public:
  bool allocate(std::uint64_t bytes) noexcept {
    bytes_ = bytes;
    mirror_ = static_cast<char*>(map_private(bytes));
    return mirror_ != nullptr && strings_.allocate() && sites_.allocate() && allocate_hashes();
  }
  void release() noexcept {
    if (mirror_ != nullptr)
      munmap(mirror_, bytes_);
    if (site_hashes_ != nullptr)
      munmap(site_hashes_, InternTable::kSize * sizeof(std::uint64_t));
    mirror_ = nullptr;
    site_hashes_ = nullptr;
    strings_.release();
    sites_.release();
  }

  /// What has been taken of the room, and all of it.
  [[nodiscard]] std::uint64_t used() const noexcept {
    return __atomic_load_n(&used_, __ATOMIC_ACQUIRE);
  }
  [[nodiscard]] std::uint64_t room() const noexcept { return bytes_; }

  /// Writes what is known so far into a new file (or none).
  void attach(FileHeader* header, char* base) noexcept {
    header_ = header;
    area_ = header == nullptr || header->definitions_bytes == 0 ? nullptr
                                                                : base + header->definitions_offset;
    if (area_ == nullptr)
      return;
    const std::uint64_t used = __atomic_load_n(&used_, __ATOMIC_ACQUIRE);
    std::memcpy(area_, mirror_, used);
    __atomic_store_n(&header->definitions_used, used, __ATOMIC_RELEASE);
  }

  [[nodiscard]] std::uint32_t find_site(std::uint64_t key) const noexcept {
    return sites_.find(key);
  }
  [[nodiscard]] std::uint64_t site_hash(std::uint32_t site) const noexcept {
    return site_hashes_[site];
  }

  /// Under the caller's lock. 0 = no room; that is remembered, so that it is not tried again.
  std::uint32_t add_site(std::uint64_t key, const SiteFrame* frames, std::uint32_t count) noexcept {
    FrameRecord records[kFramesMax];
    count = count < kFramesMax ? count : kFramesMax;
    std::uint64_t hash = count;
    for (std::uint32_t i = 0; i < count; ++i) {
      const SiteFrame& frame = frames[i];
      records[i] = FrameRecord{add_string(frame.module, std::strlen(frame.module)),
                               add_string(frame.function, std::strlen(frame.function)),
                               frame.offset, frame.line, 0};
      hash = mix(mix(hash, hash_bytes(frame.module, std::strlen(frame.module))), frame.offset);
    }
    std::uint32_t id = site_count_ + 1;
    if (!append(DefinitionKind::kSite, id, count, records, count * sizeof(FrameRecord)))
      id = 0;
    if (!sites_.insert(key, id))
      return 0;
    if (id != 0) {
      site_count_ = id;
      site_hashes_[id] = hash;
    }
    return id;
  }

  std::uint32_t add_string(const char* text, std::size_t length) noexcept {
    if (length == 0)
      return 0;
    length = length < 4096 ? length : 4096;
    const std::uint64_t key = hash_bytes(text, length);
    const std::uint32_t known = strings_.find(key);
    if (known != InternTable::kNotFound)
      return known;
    const std::uint32_t id = string_count_ + 1;
    if (!append(DefinitionKind::kString, id, static_cast<std::uint32_t>(length), text, length))
      return 0;
    string_count_ = id;
    strings_.insert(key, id);  // Full: the string is written again when it comes again.
    return id;
  }

  bool add_group_ranks(std::uint32_t group, const std::int32_t* ranks,
                       std::uint32_t count) noexcept {
    return append(DefinitionKind::kGroupRanks, group, count, ranks, count * sizeof *ranks);
  }

  bool add_creation(const CreationRecord& creation, const std::int32_t* ranks,
                    std::uint32_t count) noexcept {
    struct {
      CreationRecord creation;
      std::int32_t ranks[kCreationRanksMax];
    } both;
    both.creation = creation;
    count = count <= kCreationRanksMax ? count : 0;
    if (count != 0)
      std::memcpy(both.ranks, ranks, count * sizeof *ranks);
    creations_end_ = creations_end_ ||  // Those told have none missing between them.
                     !append(DefinitionKind::kCreation, creation_count_, count, &both,
                             sizeof creation + count * sizeof *ranks);
    creation_count_ += creations_end_ ? 0 : 1;
    return !creations_end_;
  }

  bool add_begun(const BegunRecord& begun) noexcept {
    return append(DefinitionKind::kBegun, 0, 0, &begun, sizeof begun);
  }

  bool add_set_aside(const SetAsideRecord& calls) noexcept {
    return append(DefinitionKind::kSetAside, 0, 0, &calls, sizeof calls);
  }

 private:
  bool allocate_hashes() noexcept {
    site_hashes_ =
        static_cast<std::uint64_t*>(map_private(InternTable::kSize * sizeof(std::uint64_t)));
    return site_hashes_ != nullptr;
  }

  bool append(DefinitionKind kind, std::uint32_t id, std::uint32_t count, const void* payload,
              std::size_t payload_bytes) noexcept {
    const std::uint64_t bytes = (sizeof(DefinitionHead) + payload_bytes + 7) / 8 * 8;
    if (used_ + bytes > bytes_) {
      if (header_ != nullptr)
        __atomic_fetch_add(&header_->dropped_definitions, 1, __ATOMIC_RELAXED);
      return false;
    }
    write(mirror_ + used_, kind, id, count, payload, payload_bytes, bytes);
    if (area_ != nullptr)
      write(area_ + used_, kind, id, count, payload, payload_bytes, bytes);
    __atomic_store_n(&used_, used_ + bytes, __ATOMIC_RELEASE);
    if (area_ != nullptr)
      __atomic_store_n(&header_->definitions_used, used_, __ATOMIC_RELEASE);
    return true;
  }

  static void write(char* at, DefinitionKind kind, std::uint32_t id, std::uint32_t count,
                    const void* payload, std::size_t payload_bytes, std::uint64_t bytes) noexcept {
    auto* const head = reinterpret_cast<DefinitionHead*>(at);
    head->id = id;
    head->count = count;
    if (payload_bytes != 0)
      std::memcpy(at + sizeof *head, payload, payload_bytes);
    __atomic_store_n(&head->commit, definition_commit(kind, static_cast<std::uint32_t>(bytes)),
                     __ATOMIC_RELEASE);
  }

  FileHeader* header_ = nullptr;
  char* area_ = nullptr;
  char* mirror_ = nullptr;
  std::uint64_t bytes_ = 0;
  std::uint64_t used_ = 0;
  std::uint32_t string_count_ = 0;
  std::uint32_t site_count_ = 0;
  std::uint32_t creation_count_ = 0;
  bool creations_end_ = false;
  InternTable strings_;
  InternTable sites_;
  std::uint64_t* site_hashes_ = nullptr;
};

}  // namespace lockstep::history

#pragma GCC visibility pop
