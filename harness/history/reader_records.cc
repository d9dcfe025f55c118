// The part of ProcessReader that reads records: the ring, the pending area, and what gaps in them
// mean.
#include <fmt/format.h>

#include <algorithm>

#include "harness/history/reader.h"

namespace lockstep::history {
namespace {

constexpr std::uint64_t kChunkSlots = 4096;
constexpr std::size_t kAbsentMax = 4096;
constexpr std::uint64_t kCutShortMax =
    256;  // Threads that may have been inside issue() when killed.

bool is_open(const Collective& collective) {
  return !collective.returned_ns || (!collective.completed_ns && !collective.completion_unseen);
}

bool by_record(const Collective& a, std::uint64_t record) { return a.record < record; }

}  // namespace

void ProcessReader::read_slots(const Window& window, std::uint64_t begin, std::uint64_t end,
                               bool final) {
  if (begin >= end)
    return;
  if (collectives_max_ == 0 && process_.collectives.empty())
    process_.collectives.reserve(std::min(end - begin, source_->size() / sizeof(Slot)));
  while (begin < end) {
    // Up to the end of the ring, then on from its start.
    const std::uint64_t index = begin % window.slots;
    const std::uint64_t here = std::min(end - begin, window.slots - index);
    const std::uint64_t at = layout_.ring_offset + index * sizeof(Slot), size = source_->size();
    const std::uint64_t backed = (size - std::min(size, at) + sizeof(Slot) - 1) / sizeof(Slot);
    const std::uint64_t count = backed != 0 ? std::min({here, kChunkSlots, backed}) : here;
    if (backed != 0)
      read_chunk(window, begin, count, final);
    else
      note_absent(begin, count);
    begin += count;
  }
}

/// Records [begin, begin + count), which lie one after the other in the ring.
void ProcessReader::read_chunk(const Window& window, std::uint64_t begin, std::uint64_t count,
                               bool final) {
  const std::uint64_t at = layout_.ring_offset + begin % window.slots * sizeof(Slot);
  chunk_.resize(count);
  chunk_.resize(source_->read(at, std::as_writable_bytes(std::span(chunk_))) / sizeof(Slot));
  if (!final) {  // Copy, then look at the commit word again: a slot taken over meanwhile is torn.
    recheck_.resize(chunk_.size());
    recheck_.resize(source_->read(at, std::as_writable_bytes(std::span(recheck_))) / sizeof(Slot));
  }
  const std::vector<Slot>& latest = final ? chunk_ : recheck_;
  for (std::uint64_t i = 0; i < count; ++i) {
    const std::uint64_t record = begin + i;
    const bool stable =
        i < std::min(chunk_.size(), latest.size()) && latest[i].commit == chunk_[i].commit;
    if (stable && take_slot(chunk_[i], record, final))
      continue;
    const bool overtaken = !final && i < latest.size() && latest[i].commit > record + 1;
    if (!overtaken)
      note_absent(record, 1);
  }
}

void ProcessReader::note_absent(std::uint64_t begin, std::uint64_t count) {
  for (; count > 0 && absent_.size() < kAbsentMax; --count)
    absent_.push_back(begin++);
  absent_unlisted_ += count;
}

/// False if the slot does not hold that record, or refers to what is not defined (yet).
bool ProcessReader::take_slot(const Slot& slot, std::uint64_t record, bool final) {
  if (slot.commit != record + 1)
    return false;
  if (slot.group >= process_.groups.size() || slot.site >= process_.sites.size()) {
    if (final && slot.group < process_.groups.size())
      damage(fmt::format("record {} names a call site that is not there", record));
    if (!final || slot.group >= process_.groups.size())
      return false;
  }
  if (slot.op >= static_cast<std::uint8_t>(Op::kCount) ||
      slot.dtype >= static_cast<std::uint8_t>(DType::kCount) ||
      slot.reduce_op >= static_cast<std::uint8_t>(ReduceOp::kCount))
    return false;
  Collective collective;
  collective.record = record;
  collective.group = slot.group;
  collective.seq = slot.seq;
  collective.op = static_cast<Op>(slot.op);
  collective.dtype = static_cast<DType>(slot.dtype);
  collective.reduce_op = static_cast<ReduceOp>(slot.reduce_op);
  collective.async = (slot.flags & kAsync) != 0;
  collective.overlapped = (slot.flags & kOverlapped) != 0;
  collective.root = slot.root;
  collective.tag = slot.tag;
  collective.numel_in = slot.numel_in;
  collective.numel_out = slot.numel_out;
  collective.counts_hash = slot.counts_hash;
  collective.shares_told = (slot.flags & kExchange) != 0;
  collective.gaps = (slot.flags & kGaps) != 0;
  if (collective.shares_told)
    collective.exchange = {.sent = slot.sent, .received = slot.received};
  collective.timeout_ms = slot.timeout_ms;
  collective.thread = slot.thread;
  collective.site = slot.site < process_.sites.size() ? slot.site : 0;
  collective.issued_ns = slot.issued_ns;
  set_stamps(collective, slot);
  if (is_open(collective))
    open_.push_back(record);
  const bool point_to_point = is_point_to_point(collective.op);
  Group& group = process_.groups[slot.group];
  GroupOrdinals& ordinals = ordinals_[slot.group];
  (point_to_point ? ordinals.point_to_point : ordinals.collectives).add(slot.ordinal);
  if (!point_to_point)  // Committed but not yet counted, if the kill came in between.
    group.issued = std::max(group.issued, slot.seq == kSeqUnknown ? 0 : slot.seq + 1);
  auto& all = process_.collectives;
  if (all.empty() || all.back().record < record) {
    all.push_back(collective);
    return true;
  }
  const auto place = std::lower_bound(all.begin(), all.end(), record, by_record);
  if (place != all.end() && place->record == record)
    return true;
  if (static_cast<std::size_t>(place - all.begin()) < overlaps_marked_)
    ++overlaps_marked_;
  all.insert(place, collective);
  return true;
}

/// Stamps count only if they are of the record's own lap; a delta beyond 2^64 - issue is nonsense.
void ProcessReader::set_stamps(Collective& collective, const Slot& slot) {
  const auto time_of = [&](std::uint64_t word) -> OptionalTime {
    if (stamp_delta(word) == 0 || stamp_delta(word) == kStampNeverTold)
      return {};
    return collective.issued_ns + stamp_delta(word);
  };
  collective.returned_ns = time_of(slot.returned);
  collective.completed_ns = time_of(slot.completed);
  collective.completion_unseen =
      (slot.flags & kNeverTold) != 0 || stamp_delta(slot.completed) == kStampNeverTold;
  collective.failed = (collective.returned_ns && stamp_error(slot.returned)) ||
                      (collective.completed_ns && stamp_error(slot.completed));
}

Collective* ProcessReader::find(std::uint64_t record) {
  auto& all = process_.collectives;
  const auto place = std::lower_bound(all.begin(), all.end(), record, by_record);
  return place == all.end() || place->record != record ? nullptr : &*place;
}

/// Looks again at what had not returned or completed: in runs, since it mostly lies together.
void ProcessReader::refresh_open(const Window& window) {
  std::sort(open_.begin(), open_.end());
  open_.erase(std::unique(open_.begin(), open_.end()), open_.end());
  std::vector<std::uint64_t> still;
  for (std::size_t i = 0; i < open_.size();) {
    const std::uint64_t first = open_[i];
    if (first < window.begin || window.slots == 0) {
      still.push_back(first);  // In the pending area, if anywhere.
      ++i;
      continue;
    }
    const std::uint64_t reach = std::min(window.slots - first % window.slots, kChunkSlots);
    std::size_t last = i;
    while (last + 1 < open_.size() && open_[last + 1] - open_[last] < 64 &&
           open_[last + 1] - first < reach)
      ++last;
    chunk_.resize(open_[last] - first + 1);
    chunk_.resize(source_->read(layout_.ring_offset + first % window.slots * sizeof(Slot),
                                std::as_writable_bytes(std::span(chunk_))) /
                  sizeof(Slot));
    for (; i <= last; ++i) {
      Collective* const collective = find(open_[i]);
      if (collective == nullptr)
        continue;
      const std::uint64_t offset = open_[i] - first;
      // The lap in the stamps tells whether they are still this record's, even while the slot
      // changes hands.
      const std::uint64_t lap = open_[i] / window.slots & 0x7fff;
      if (offset < chunk_.size() && chunk_[offset].commit == open_[i] + 1 &&
          chunk_[offset].returned >> 49 == lap && chunk_[offset].completed >> 49 == lap)
        set_stamps(*collective, chunk_[offset]);
      if (is_open(*collective))
        still.push_back(open_[i]);
    }
  }
  open_ = std::move(still);
}

std::vector<Slot> ProcessReader::pending_slots(bool final) {
  std::vector<Slot> slots(
      std::min<std::uint64_t>(layout_.pending_capacity, source_->size() / sizeof(Slot)));
  const auto read = [&](std::vector<Slot>& into) {
    into.resize(source_->read(layout_.pending_offset, std::as_writable_bytes(std::span(into))) /
                sizeof(Slot));
  };
  read(slots);
  if (final)
    return slots;
  std::vector<Slot> again(slots.size());
  read(again);
  slots.resize(again.size());
  for (std::size_t i = 0; i < slots.size(); ++i)
    slots[i].commit = slots[i].commit == again[i].commit ? slots[i].commit : 0;
  return slots;
}

/// Incomplete records that the ring has overtaken. One that is in neither place was completed and
/// forgotten.
void ProcessReader::read_pending(const Window& window, bool final) {
  std::vector<std::uint64_t> found;
  for (const Slot& slot : pending_slots(final)) {
    if (slot.commit == 0 || slot.commit - 1 >= window.begin)
      continue;
    const std::uint64_t record = slot.commit - 1;
    found.push_back(record);
    if (Collective* const known = find(record); known != nullptr) {
      set_stamps(*known, slot);
      continue;
    }
    if (slot.group <
        ordinals_.size()) {  // Not of the ring: its ordinal says nothing about gaps there.
      const GroupOrdinals kept = ordinals_[slot.group];
      take_slot(slot, record, final);
      ordinals_[slot.group] = kept;
    }
  }
  std::sort(found.begin(), found.end());
  std::erase_if(open_, [&](std::uint64_t record) {
    const Collective* const collective = find(record);
    if (collective == nullptr || !is_open(*collective))
      return true;
    if (record >= window.begin || std::binary_search(found.begin(), found.end(), record))
      return false;
    const auto index = collective - process_.collectives.data();
    process_.collectives.erase(process_.collectives.begin() + index);
    if (static_cast<std::size_t>(index) < overlaps_marked_)
      --overlaps_marked_;
    return true;
  });
}

/// The writer marks the later of two overlapping calls; the earlier, in whose call it fell, is
/// marked here.
void ProcessReader::mark_overlaps() {
  auto& all = process_.collectives;
  for (std::size_t i = overlaps_marked_; i < all.size(); ++i) {
    const Collective& current = all[i];
    if (is_point_to_point(current.op))
      continue;
    std::vector<std::uint64_t>& inside = inside_[current.group];
    if (current.overlapped || inside.size() >= 64) {
      std::erase_if(inside, [&](std::uint64_t record) {
        Collective* const earlier = find(record);
        if (earlier == nullptr ||
            (earlier->returned_ns && *earlier->returned_ns <= current.issued_ns))
          return true;
        if (current.overlapped && earlier->thread != current.thread)
          earlier->overlapped = true;
        return false;
      });
    }
    if (inside.size() < 1024)
      inside.push_back(current.record);
  }
  overlaps_marked_ = all.size();
}

void ProcessReader::forget_old() {
  auto& all = process_.collectives;
  if (collectives_max_ == 0 || all.size() <= 2 * collectives_max_)
    return;
  const std::uint64_t keep_from = all[all.size() - collectives_max_].record;
  std::erase_if(all, [&](const Collective& c) { return c.record < keep_from && !is_open(c); });
  overlaps_marked_ = all.size();
}

// --- What is missing
// ----------------------------------------------------------------------------------------

void ProcessReader::Ordinals::add(std::uint64_t ordinal) {
  lowest = count == 0 ? ordinal : std::min(lowest, ordinal);
  highest = count == 0 ? ordinal : std::max(highest, ordinal);
  ++count;
}

/// No hole between the first and the last that were seen, and the last is as far as was counted.
/// Where none was seen, none may have been lost.
bool ProcessReader::Ordinals::reaches(std::uint64_t issued) const {
  return count == 0 ? issued == 0 : highest - lowest + 1 == count && highest + 1 >= issued;
}

void ProcessReader::conclude(const FileHeader& header, const Window& window) {
  const auto say = [&](std::uint64_t count, const char* what) {
    if (count != 0)
      missing_.push_back(fmt::format("{}: {} {}", process_.file, count, what));
  };
  say(header.dropped_definitions, "names or call sites found no room");
  say(header.dropped_groups, "groups found no room; their collectives are not recorded");
  say(header.dropped_digests, "blocks of the digest chain found no room");
  say(header.dropped_pending,
      "incomplete old records found no room; whether they completed is not known");
  say(header.dropped_channels, "point-to-point operations have no sequence number");
  const std::uint64_t slots_end = layout_.ring_offset + window.slots * sizeof(Slot);
  if (layout_.ring_capacity != 0 && source_->size() < slots_end)
    damage(fmt::format("the file ends after {} of {} bytes", source_->size(), slots_end));
  conclude_gaps(header, window);
}

void ProcessReader::conclude_gaps(const FileHeader& header, const Window& window) {
  const std::uint64_t beyond =
      header.next_record > window.end ? header.next_record - window.end : 0;
  const std::uint64_t gaps = absent_.size() + absent_unlisted_ + beyond;
  if (gaps == 0 || layout_.ring_capacity == 0)
    return;
  absent_unlisted_ += beyond;
  const std::uint64_t first =
      absent_.empty() ? window.end : *std::min_element(absent_.begin(), absent_.end());
  const std::string which = gaps == 1
                                ? fmt::format("record {} is missing", first)
                                : fmt::format("{} records from {} on are missing", gaps, first);
  // A number taken but nothing written: killed inside issue(), before the call was passed on.
  // Certain only if no group lacks one of its own numbers.
  if (header.closed != kClosedMagic && gaps <= kCutShortMax && gap_took_nothing())
    missing_.push_back(
        fmt::format("{}: {}: its process ended while writing", process_.file, which));
  else if (gaps <= header.dropped_records)
    missing_.push_back(fmt::format("{}: {}: its slot was still in use", process_.file, which));
  else
    damage(which);
}

bool ProcessReader::gap_took_nothing() const {
  for (std::size_t i = 0; i < process_.groups.size(); ++i) {
    const Group& group = process_.groups[i];
    if (!ordinals_[i].collectives.reaches(group.issued) ||
        !ordinals_[i].point_to_point.reaches(group.p2p_issued))
      return false;
  }
  return true;
}

Result<ProcessFile> read_process(std::unique_ptr<ByteSource> source, const std::string& name) {
  ProcessReader reader(std::move(source), name);
  if (auto read = reader.poll(true); !read)
    return read.error();
  ProcessFile file{{}, reader.missing()};
  reader.swap(file.process);
  return file;
}

}  // namespace lockstep::history
