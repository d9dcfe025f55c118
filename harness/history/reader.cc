#include "harness/history/reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

namespace lockstep::history {
namespace {

// More than this is not a file of ours. The ring is read piece by piece, the rest is held in
// memory.
constexpr std::uint64_t kAreaBytesMax = 64U << 20;
constexpr std::uint64_t kRingBytesMax = 1U << 30;

template <std::size_t N>
std::string text_of(const char (&field)[N]) {
  return std::string(field, strnlen(field, N));
}

template <class T>
std::span<std::byte> bytes_of(T& value) {
  return std::as_writable_bytes(std::span(&value, 1));
}

/// Area [offset, offset + count * each) lies after the header, is aligned, and is not absurd.
bool sane_area(std::uint64_t offset, std::uint64_t count, std::uint64_t each,
               std::uint64_t bytes_max = kAreaBytesMax) {
  return offset >= sizeof(FileHeader) && offset <= 4 * kAreaBytesMax && offset % 8 == 0 &&
         count <= bytes_max / each;
}

std::uint64_t events_of(const GroupEntry& entry) {
  return entry.issued + entry.returned + entry.completed + entry.p2p_issued + entry.p2p_returned +
         entry.p2p_completed + entry.renamed;
}

}  // namespace

ProcessReader::ProcessReader(std::unique_ptr<ByteSource> source, std::string name,
                             std::size_t collectives_max)
    : source_(std::move(source)), collectives_max_(collectives_max) {
  process_.file = std::move(name);
  process_.sites.emplace_back();
}

Result<bool> ProcessReader::poll(bool final) {
  FileHeader header{};
  if (!read_header(header)) {
    // No magic: not begun yet, or cut off. A known file that loses its header keeps what was read.
    if (!accepted_)
      return Error{Error::Kind::kMalformedHistory,
                   fmt::format("{} is not a history file: {} bytes, no header", process_.file,
                               source_->size()),
                   ""};
    if (final)
      damage("the header is gone");
    return false;
  }
  if (!accepted_) {
    if (auto accepted = accept(header); !accepted)
      return accepted;
  }
  // Groups before the record counter, definitions after it: what is counted is then in the ring,
  // and what the ring refers to is defined.
  const Head before = head_;
  head_.events = read_groups(header.groups_used);
  if (!read_header(header))
    return false;
  head_.records = header.next_record;
  const bool told = take_identity(header);
  if (!final && !told && head_ == before && absent_.empty())
    return false;
  read_definitions(header.definitions_used);
  for (std::size_t i = 0; i < process_.groups.size(); ++i)
    process_.groups[i].site = group_sites_[i] < process_.sites.size() ? group_sites_[i] : 0;
  read_digests(header.digests_used);
  const Window window = window_of(header);
  const std::vector<std::uint64_t> retry = std::exchange(absent_, {});
  for (std::size_t i = 0, last = 0; i < retry.size(); i = ++last) {  // In runs, as they lie.
    while (last + 1 < retry.size() && retry[last + 1] == retry[last] + 1)
      ++last;
    read_slots(window, std::max(retry[i], window.begin), std::min(retry[last] + 1, window.end),
               final);
  }
  read_slots(window, std::max(next_, window.begin), window.end, final);
  next_ = std::max(next_, window.end);
  refresh_open(window);
  if (window.begin > 0)
    read_pending(window, final);
  mark_overlaps();
  forget_old();
  const std::uint64_t accounted = process_.collectives.size() + absent_.size() + absent_unlisted_;
  process_.dropped = header.dropped_records + (next_ > accounted ? next_ - accounted : 0);
  if (final)
    conclude(header, window);
  const bool complete = absent_.empty() && absent_unlisted_ == 0 && !process_.damaged;
  process_.closed =
      complete && header.closed == kClosedMagic && header.closed_records == header.next_record;
  process_.closed_ns = process_.closed ? header.closed_ns : 0;
  return true;
}

bool ProcessReader::read_header(FileHeader& header) {
  return source_->read(0, bytes_of(header)) == sizeof header && header.magic == kFileMagic;
}

Result<bool> ProcessReader::accept(const FileHeader& header) {
  if (header.version != kFormatVersion || header.header_bytes != sizeof(FileHeader))
    return Error{Error::Kind::kMalformedHistory,
                 fmt::format("{} has format version {}, this lockstep reads version {}",
                             process_.file, header.version, kFormatVersion),
                 "read it with the version that wrote it (run.json says which)"};
  const bool has_areas = header.ring_capacity != 0;
  if (has_areas &&
      !(sane_area(header.definitions_offset, header.definitions_bytes, 1) &&
        sane_area(header.groups_offset, header.groups_capacity, sizeof(GroupEntry)) &&
        sane_area(header.digests_offset, header.digests_capacity, sizeof(DigestEntry)) &&
        sane_area(header.pending_offset, header.pending_capacity, sizeof(Slot)) &&
        sane_area(header.ring_offset, header.ring_capacity, sizeof(Slot), kRingBytesMax)))
    return Error{Error::Kind::kMalformedHistory,
                 fmt::format("{}: the header's layout makes no sense", process_.file), ""};
  layout_ = header;
  if (!has_areas)
    layout_.definitions_bytes = layout_.groups_capacity = layout_.digests_capacity =
        layout_.pending_capacity = 0;
  process_.host = text_of(header.host);
  process_.boot_id = text_of(header.boot_id);
  process_.torch_version = text_of(header.torch_version);
  process_.pid = header.pid;
  process_.parent_pid = header.parent_pid;
  process_.pid_namespace = header.pid_namespace;
  process_.start_ticks = header.start_ticks;
  process_.opened_ns = header.monotonic_ns;
  process_.wall_ns = header.wall_ns;
  process_.capabilities = header.capabilities;
  accepted_ = true;
  return true;
}

/// What may be told later than the first record. True if it was told just now.
bool ProcessReader::take_identity(const FileHeader& header) {
  const bool news = (header.rank >= 0 && process_.rank != Rank{header.rank}) ||
                    header.world_size != process_.world_size ||
                    (header.closed == kClosedMagic) != process_.closed;
  if (header.rank >= 0)
    process_.rank = Rank{header.rank};
  process_.world_size = header.world_size;
  if (header.devices_visible > 0 && !process_.device) {
    process_.device = {.index = header.device_index, .visible = header.devices_visible};
    for (const std::uint8_t byte : header.device_uuid)
      process_.device->uuid += fmt::format("{:02x}", byte);
  }
  return news;
}

/// Which records the ring holds, from counters that may be hostile.
ProcessReader::Window ProcessReader::window_of(const FileHeader& header) const {
  const bool wraps = header.ring_final != 0;
  Window window;
  window.slots = std::min(wraps ? header.ring_final : header.reserved_slots, layout_.ring_capacity);
  window.end = wraps ? header.next_record : std::min(header.next_record, window.slots);
  window.begin = window.end > window.slots ? window.end - window.slots : 0;
  return window;
}

void ProcessReader::damage(const std::string& what) {
  process_.damaged = true;
  process_.closed_ns = 0;
  process_.closed = false;  // Also where it was, before something took away what was there.
  if (missing_.size() < 32)
    missing_.push_back(fmt::format("{}: {}", process_.file, what));
}

/// The table as far as it is in use: a few entries, whose counters are what a poll looks at.
std::vector<GroupEntry> ProcessReader::group_entries(std::uint64_t used) {
  const std::uint64_t at = layout_.groups_offset;
  const std::uint64_t backed =
      source_->size() > at ? (source_->size() - at) / sizeof(GroupEntry) : 0;
  std::vector<GroupEntry> entries(std::min({used, layout_.groups_capacity, backed}));
  entries.resize(source_->read(at, std::as_writable_bytes(std::span(entries))) /
                 sizeof(GroupEntry));
  return entries;
}

Head ProcessReader::read_head() {
  FileHeader header{};
  if (!accepted_ || !read_header(header))
    return head_;
  Head head{header.next_record, 0};
  for (const GroupEntry& entry : group_entries(header.groups_used))
    head.events += events_of(entry);
  return head;
}

std::uint64_t ProcessReader::read_groups(std::uint64_t used) {
  const std::vector<GroupEntry> entries = group_entries(used);
  std::uint64_t events = 0;
  for (std::size_t i = 0; i < entries.size(); ++i) {
    if (entries[i].commit != i + 1) {
      if (i >= process_.groups.size()) {
        damage(fmt::format("group {} was not written in full", i));
        return events;
      }
      continue;  // Keep what an earlier poll saw.
    }
    take_group(i, entries[i]);
    events += events_of(entries[i]);
  }
  if (entries.size() < std::min(used, layout_.groups_capacity) && !process_.damaged)
    damage(fmt::format("{} of {} groups are cut off", used - entries.size(), used));
  return events;
}

void ProcessReader::take_group(std::size_t index, const GroupEntry& entry) {
  if (index >= process_.groups.size()) {
    process_.groups.emplace_back();
    ordinals_.emplace_back();
    inside_.emplace_back();
    group_sites_.push_back(0);
    renamed_.push_back(entry.renamed);
    describe_group(index, entry);
  } else if (renamed_[index] != entry.renamed) {
    renamed_[index] = entry.renamed;
    describe_group(index, entry);
  }
  Group& group = process_.groups[index];
  group.seen_from_creation =
      (entry.flags & kSeenFromCreation) != 0 && (entry.flags & kMetLate) == 0;
  group.inside = (entry.flags & kInside) != 0;
  group.issued = entry.issued;
  group.returned = entry.returned;
  group.completed = entry.completed;
  group.p2p_issued = entry.p2p_issued;
  group.p2p_returned = entry.p2p_returned;
  group.p2p_completed = entry.p2p_completed;
  group.last_signatures.clear();
  const std::uint64_t known = std::min<std::uint64_t>(entry.issued, kLastSignatures);
  for (std::uint64_t seq = entry.issued - known; seq < entry.issued; ++seq)
    group.last_signatures.push_back(entry.signatures[seq % kLastSignatures]);
}

void ProcessReader::describe_group(std::size_t index, const GroupEntry& entry) {
  Group& group = process_.groups[index];
  group.name = text_of(entry.name);
  group.generation = entry.generation;
  group.size = entry.size;
  group.my_rank = entry.my_rank;
  group.named_by_store = (entry.flags & kNamedByStore) != 0;
  group.store = entry.store;
  group.timeout_ms.reset();
  if (entry.timeout_ms > 0)
    group.timeout_ms = entry.timeout_ms;
  group_sites_[index] = entry.site;  // Its definition is read after the groups.
  group.ranks.clear();
  if ((entry.flags & kRanksKnown) != 0 && entry.rank_count <= kInlineRanks) {
    for (std::uint32_t i = 0; i < entry.rank_count; ++i)
      group.ranks.push_back(Rank{entry.ranks[i]});
  } else if (index < group_ranks_.size()) {
    group.ranks = group_ranks_[index];
  }
}

void ProcessReader::read_digests(std::uint64_t used) {
  used = std::min(used, layout_.digests_capacity);
  const std::uint64_t at = layout_.digests_offset;
  const std::uint64_t backed =
      source_->size() > at ? (source_->size() - at) / sizeof(DigestEntry) : 0;
  if (std::min(used, backed) <= digests_read_)
    return;
  std::vector<DigestEntry> entries(std::min(used, backed) - digests_read_);
  const std::size_t got = source_->read(at + digests_read_ * sizeof(DigestEntry),
                                        std::as_writable_bytes(std::span(entries))) /
                          sizeof(DigestEntry);
  for (std::size_t i = 0; i < got; ++i) {
    const DigestEntry& entry = entries[i];
    if (entry.commit != digests_read_ + 1)
      return;  // Being written.
    ++digests_read_;
    // In order within a group; after a hole the later blocks say nothing about theirs, so they are
    // left out.
    if (entry.group < process_.groups.size() &&
        entry.block == process_.groups[entry.group].digests.size()) {
      process_.groups[entry.group].digests.push_back(entry.signature);
      process_.groups[entry.group].site_digests.push_back(entry.site);
    }
  }
}

}  // namespace lockstep::history
