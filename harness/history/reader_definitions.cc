// The part of ProcessReader that reads definitions: what records refer to, and what a process
// began.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "harness/history/reader.h"

namespace lockstep::history {

void ProcessReader::read_definitions(std::uint64_t used) {
  used = std::min(used, layout_.definitions_bytes);
  if (definitions_broken_ || used <= definitions_read_)
    return;
  std::vector<std::byte> bytes(std::min(used, source_->size()) -
                               std::min(definitions_read_, source_->size()));
  bytes.resize(source_->read(layout_.definitions_offset + definitions_read_, bytes));
  const std::uint64_t wanted = used - definitions_read_;
  std::size_t at = 0;
  while (at + sizeof(DefinitionHead) <= bytes.size()) {
    DefinitionHead head{};
    std::memcpy(&head, bytes.data() + at, sizeof head);
    const std::uint64_t length = head.commit & 0xffffffffU;
    if (head.commit >> 48 != kDefinitionMagic || length < sizeof head || length % 8 != 0 ||
        length > bytes.size() - at)
      break;
    const std::span body(bytes.data() + at + sizeof head, length - sizeof head);
    if (!parse_definition(head, body))
      break;
    at += length;
  }
  definitions_read_ += at;
  if (at < wanted) {
    definitions_broken_ = true;
    damage(fmt::format("names and call sites end after {} of {} bytes", definitions_read_, used));
  }
}

bool ProcessReader::parse_definition(const DefinitionHead& head, std::span<const std::byte> body) {
  constexpr std::size_t kStringBytesMax = 64U << 20;
  switch (static_cast<DefinitionKind>(head.commit >> 32 & 0xffff)) {
    case DefinitionKind::kString:
      if (head.id != strings_.size() || head.count > body.size() || head.count > 4096)
        return false;
      string_bytes_ += head.count;
      strings_.emplace_back(reinterpret_cast<const char*>(body.data()), head.count);
      return string_bytes_ <= kStringBytesMax;
    case DefinitionKind::kSite:
      return parse_site(head, body) && string_bytes_ <= kStringBytesMax;
    case DefinitionKind::kGroupRanks: {
      if (head.id >= layout_.groups_capacity || body.size() / sizeof(std::int32_t) < head.count)
        return false;
      if (group_ranks_.size() <= head.id)
        group_ranks_.resize(head.id + 1);
      std::vector<Rank>& ranks = group_ranks_[head.id];
      ranks.resize(head.count);
      if (head.count != 0)
        std::memcpy(ranks.data(), body.data(), head.count * sizeof(std::int32_t));
      // The group's entry may have been read already, if it was written between two of our reads.
      if (head.id < process_.groups.size() && process_.groups[head.id].ranks.empty())
        process_.groups[head.id].ranks = ranks;
      return true;
    }
    case DefinitionKind::kCreation:
      return parse_creation(head, body) && string_bytes_ <= kStringBytesMax;
    case DefinitionKind::kBegun:
      return parse_begun(body) && string_bytes_ <= kStringBytesMax;
    case DefinitionKind::kSetAside: {
      SetAsideRecord record{};
      if (body.size() < sizeof record)
        return false;
      std::memcpy(&record, body.data(), sizeof record);
      if (record.op >= strings_.size())
        return false;
      process_.set_aside.push_back({strings_[record.op], record.calls, record.at_ns});
      string_bytes_ += strings_[record.op].size();
      return string_bytes_ <= kStringBytesMax;
    }
  }
  return false;
}

/// What it refers to was defined before it.
bool ProcessReader::parse_creation(const DefinitionHead& head, std::span<const std::byte> body) {
  CreationRecord record{};
  if (head.id != process_.creations.size() || head.count > kCreationRanksMax ||
      body.size() < sizeof record + head.count * sizeof(std::int32_t))
    return false;
  std::memcpy(&record, body.data(), sizeof record);
  if (record.name >= strings_.size() || record.site >= process_.sites.size())
    return false;
  string_bytes_ += strings_[record.name].size();
  Creation creation{.name = strings_[record.name],
                    .store = record.store,
                    .size = record.size,
                    .my_rank = record.my_rank,
                    .ranks = std::vector<Rank>(head.count),
                    .site = record.site,
                    .at_ns = record.at_ns};
  if (head.count != 0)
    std::memcpy(creation.ranks.data(), body.data() + sizeof record,
                head.count * sizeof(std::int32_t));
  process_.creations.push_back(std::move(creation));
  return true;
}

bool ProcessReader::parse_site(const DefinitionHead& head, std::span<const std::byte> body) {
  if (head.id != process_.sites.size() || head.count > kFramesMax ||
      body.size() < head.count * sizeof(FrameRecord))
    return false;
  CallSite site;
  for (std::uint32_t i = 0; i < head.count; ++i) {
    FrameRecord record{};
    std::memcpy(&record, body.data() + i * sizeof record, sizeof record);
    if (record.module >= strings_.size() || record.function >= strings_.size())
      return false;
    // Names are copied into each frame: counted, so that a hostile file cannot multiply them.
    string_bytes_ += strings_[record.module].size() + strings_[record.function].size();
    // A Python frame names its function at once, and its module is the source.
    const bool python = record.function != 0;
    site.frames.push_back({strings_[record.module], record.offset,
                           python ? strings_[record.module] : "", std::max(record.line, 0),
                           strings_[record.function]});
  }
  process_.sites.push_back(std::move(site));
  return true;
}

/// What it refers to was defined before it.
bool ProcessReader::parse_begun(std::span<const std::byte> body) {
  BegunRecord record{};
  if (body.size() < sizeof record)
    return false;
  std::memcpy(&record, body.data(), sizeof record);
  if (record.path >= strings_.size() || record.site >= process_.sites.size() ||
      record.what >= static_cast<std::uint32_t>(Begins::kCount))
    return false;
  const auto what = static_cast<Begins>(record.what);
  // A child has seen all that it began, where its parent began to look before it was there.
  if (what != Begins::kNothing && record.pid != process_.pid)
    return true;
  string_bytes_ += strings_[record.path].size();
  process_.begun.push_back({.what = what,
                            .at_ns = record.at_ns,
                            .site = record.site,
                            .count = record.count,
                            .last_told = record.last_told != 0,
                            .path = strings_[record.path]});
  return true;
}

}  // namespace lockstep::history
