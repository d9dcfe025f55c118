#include "harness/history/watch_reader.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <optional>
#include <span>
#include <vector>

namespace lockstep::history {
namespace {

constexpr std::uint64_t kBytesMax = 64U << 20;  // More than this is not a file of ours.

/// The fixed part of a record; none if it is shorter.
template <class Record>
std::optional<Record> fixed_part(std::span<const std::byte> bytes) {
  if (bytes.size() < sizeof(Record))
    return std::nullopt;
  Record record;
  std::memcpy(&record, bytes.data(), sizeof record);
  return record;
}

std::optional<std::string> text_behind(std::span<const std::byte> bytes, std::size_t fixed,
                                       std::uint32_t length) {
  if (length > bytes.size() - fixed)
    return std::nullopt;
  return std::string(reinterpret_cast<const char*>(bytes.data()) + fixed, length);
}

bool take_tensor(std::span<const std::byte> bytes, WatchedValues& values) {
  const auto record = fixed_part<WatchTensorRecord>(bytes);
  auto name = record ? text_behind(bytes, sizeof *record, record->name_bytes) : std::nullopt;
  if (!name)
    return false;
  values.tensors.push_back({.name = std::move(*name),
                            .group = record->group,
                            .replica = record->replica,
                            .site = record->site,
                            .reduced = (record->flags & kReduced) != 0,
                            .ignored = (record->flags & kIgnored) != 0,
                            .buffer = (record->flags & kBuffer) != 0,
                            .loose = (record->flags & kLoose) != 0,
                            .at_start = (record->flags & kAtStart) != 0,
                            .late = (record->flags & kLate) != 0,
                            .dtype = static_cast<DType>(record->dtype),
                            .numel = record->numel});
  return true;
}

bool take_point(std::span<const std::byte> bytes, WatchedValues& values) {
  const auto record = fixed_part<WatchPointRecord>(bytes);
  if (!record || record->count > (bytes.size() - sizeof *record) / sizeof(WatchEntry))
    return false;
  WatchedPoint point{.at_ns = record->at_ns,
                     .position = record->position,
                     .step = record->step,
                     .ordinal = record->ordinal,
                     .group = record->group,
                     .optimizer = record->optimizer,
                     .entries = std::vector<WatchEntry>(record->count)};
  std::memcpy(point.entries.data(), bytes.data() + sizeof *record,
              record->count * sizeof(WatchEntry));
  if (std::any_of(point.entries.begin(), point.entries.end(),
                  [&](const WatchEntry& entry) { return entry.tensor >= values.tensors.size(); }))
    return false;
  values.points.push_back(std::move(point));
  return true;
}

bool take_unseen(std::span<const std::byte> bytes, WatchedValues& values) {
  const auto record = fixed_part<WatchUnseenRecord>(bytes);
  auto text = record ? text_behind(bytes, sizeof *record, record->text_bytes) : std::nullopt;
  if (text)
    values.unseen.push_back(std::move(*text));
  return text.has_value();
}

bool take_non_finite(std::span<const std::byte> bytes, WatchedValues& values) {
  const auto record = fixed_part<WatchNonFiniteRecord>(bytes);
  if (record)
    values.non_finite.push_back(
        {record->at_ns, record->position, record->numel, record->group, record->site});
  return record.has_value();
}

bool take_handed_in(std::span<const std::byte> bytes, WatchedValues& values) {
  const auto record = fixed_part<WatchHandedInRecord>(bytes);
  if (record)
    values.handed_in.push_back({record->at_ns, record->position, record->numel, record->value,
                                record->group, record->site, record->version});
  return record.has_value();
}

bool take_misuse(std::span<const std::byte> bytes, WatchedValues& values) {
  const auto record = fixed_part<WatchMisuseRecord>(bytes);
  if (record)
    values.misuses.push_back({record->at_ns, record->position, record->numel, record->what,
                              record->group, record->site, record->later});
  return record.has_value();
}

bool take_epoch(std::span<const std::byte> bytes, WatchedValues& values) {
  const auto record = fixed_part<WatchEpochRecord>(bytes);
  auto text = record ? text_behind(bytes, sizeof *record, record->text_bytes) : std::nullopt;
  if (!text)
    return false;
  WatchedEpoch epoch{.at_ns = record->at_ns,
                     .received = record->received,
                     .batches = record->batches,
                     .order = record->order,
                     .share = record->share,
                     .subset = record->subset,
                     .replicas = record->replicas,
                     .loader = record->loader,
                     .epoch = record->epoch,
                     .flags = record->flags,
                     .taken = record->taken,
                     .share_of = record->share_of,
                     .seed = record->seed};
  std::copy(std::begin(record->digests), std::end(record->digests), epoch.digests.begin());
  const std::size_t line = std::min(text->find('\n'), text->size());
  epoch.sampler = text->substr(0, line);
  epoch.place = text->substr(std::min(line + 1, text->size()));
  values.epochs.push_back(std::move(epoch));
  return true;
}

void take_counts(const WatchHeader& header, WatchedValues& values) {
  values.on = true;
  values.steps = header.steps;
  values.watched = header.watched;
  values.dropped = header.dropped;
  values.first_ns = header.first_ns;
  values.steady_ns = header.steady_ns;
  values.steady_since_ns = header.steady_since_ns;
  values.steady_until_ns = header.steady_until_ns;
  values.interval = header.interval;
  values.last_step_ns = header.last_step_ns;
}

}  // namespace

std::unique_ptr<ByteSource> watch_beside(const std::string& path) {
  auto source = FileSource::open(std::filesystem::path(path).replace_extension(".lsw").string());
  return source ? std::move(*source) : nullptr;
}

bool WatchReader::poll(WatchedValues& values) {
  WatchHeader header{};
  if (broken_ || source_->read(0, std::as_writable_bytes(std::span(&header, 1))) != sizeof header ||
      header.magic != kWatchMagic || header.version != kWatchVersion)
    return false;
  take_counts(header, values);
  const std::uint64_t end = std::min({header.used, source_->size(), kBytesMax});
  if (end <= read_)
    return false;
  std::vector<std::byte> bytes(end - read_);
  bytes.resize(source_->read(read_, bytes));
  std::size_t at = 0;
  while (at + sizeof(WatchHead) <= bytes.size()) {
    WatchHead head{};
    std::memcpy(&head, bytes.data() + at, sizeof head);
    if (head.bytes < sizeof head || head.bytes % 8 != 0 || head.bytes > bytes.size() - at ||
        !take(head, std::span(bytes).subspan(at, head.bytes), values))
      break;
    at += head.bytes;
  }
  read_ += at;
  broken_ = at < bytes.size();
  return at > 0;
}

bool WatchReader::take(const WatchHead& head, std::span<const std::byte> record,
                       WatchedValues& values) {
  switch (head.kind) {
    case WatchKind::kTensor:
      return take_tensor(record, values);
    case WatchKind::kPoint:
      return take_point(record, values);
    case WatchKind::kNotWatched:
      return take_unseen(record, values);
    case WatchKind::kNonFinite:
      return take_non_finite(record, values);
    case WatchKind::kEpoch:
      return take_epoch(record, values);
    case WatchKind::kHandedIn:
      return take_handed_in(record, values);
    case WatchKind::kMisuse:
      return take_misuse(record, values);
  }
  return false;
}

}  // namespace lockstep::history
