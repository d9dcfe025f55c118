#include "harness/history/dump_value.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>
#include <utility>

namespace lockstep::history {
namespace {

using Kind = DumpValue::Kind;

std::uint64_t times(std::uint64_t a, std::uint64_t b) {
  std::uint64_t product = 0;
  return __builtin_mul_overflow(a, b, &product) ? std::numeric_limits<std::uint64_t>::max()
                                                : product;
}

std::uint64_t plus(std::uint64_t a, std::uint64_t b) {
  std::uint64_t sum = 0;
  return __builtin_add_overflow(a, b, &sum) ? std::numeric_limits<std::uint64_t>::max() : sum;
}

DType dtype_of(std::string_view name) {
  static constexpr std::array<std::pair<std::string_view, DType>, 12> kNames{{
      {"Float", DType::kFloat32},
      {"BFloat16", DType::kBFloat16},
      {"Half", DType::kFloat16},
      {"Double", DType::kFloat64},
      {"Long", DType::kInt64},
      {"Int", DType::kInt32},
      {"Short", DType::kInt16},
      {"Char", DType::kInt8},
      {"Byte", DType::kUInt8},
      {"Bool", DType::kBool},
      {"ComplexFloat", DType::kComplex64},
      {"ComplexDouble", DType::kComplex128},
  }};
  for (const auto& [known, dtype] : kNames) {
    if (known == name)
      return dtype;
  }
  return DType::kOther;
}

DumpEntry::State state_of(std::string_view name) {
  if (name == "scheduled")
    return DumpEntry::State::kScheduled;
  if (name == "started")
    return DumpEntry::State::kStarted;
  return name == "completed" ? DumpEntry::State::kCompleted : DumpEntry::State::kUnknown;
}

/// "[0, 1, 2]"; a name that torch.distributed never gives is left out.
std::vector<std::int32_t> ranks_in(std::string_view text) {
  std::vector<std::int32_t> ranks;
  const char* at = text.data();
  const char* const end = at + text.size();
  while (at < end) {
    std::int32_t rank = 0;
    const auto [next, error] = std::from_chars(at, end, rank);
    if (error == std::errc() && rank >= 0)
      ranks.push_back(rank);
    at = next > at ? next : at + 1;
  }
  return ranks;
}

}  // namespace

DumpValue DumpValues::text(std::string_view text) {
  if (const auto at = text_ids_.find(text); at != text_ids_.end())
    return {Kind::kText, at->second};
  const auto id = static_cast<std::int64_t>(texts_.size());
  texts_.emplace_back(text);
  text_ids_.emplace(texts_.back(), id);
  return {Kind::kText, id};
}

DumpValue DumpValues::container(Kind kind) {
  ++live_;
  if (free_.empty()) {
    containers_.emplace_back();
    return {kind, static_cast<std::int64_t>(containers_.size()) - 1};
  }
  const std::int64_t id = free_.back();
  free_.pop_back();
  return {kind, id};
}

std::string_view DumpValues::text_of(DumpValue value) const {
  return value.is_text() ? std::string_view(texts_[static_cast<std::size_t>(value.number)])
                         : std::string_view();
}

std::span<const DumpValue> DumpValues::items_of(DumpValue value) const {
  if (value.kind != Kind::kList && value.kind != Kind::kMap)
    return {};
  return containers_[static_cast<std::size_t>(value.number)].items;
}

void DumpValues::add(DumpValue to, std::span<const DumpValue> items) {
  std::vector<DumpValue>& all = containers_[static_cast<std::size_t>(to.number)].items;
  all.insert(all.end(), items.begin(), items.end());
}

void DumpValues::share(DumpValue value) {
  if (value.kind == Kind::kList || value.kind == Kind::kMap)
    containers_[static_cast<std::size_t>(value.number)].shared = true;
}

bool DumpValues::is_shared(DumpValue value) const {
  return (value.kind == Kind::kList || value.kind == Kind::kMap) &&
         containers_[static_cast<std::size_t>(value.number)].shared;
}

void DumpValues::release(DumpValue value) {
  releasing_.assign(1, value);
  while (!releasing_.empty()) {
    const DumpValue next = releasing_.back();
    releasing_.pop_back();
    if (next.kind != Kind::kList && next.kind != Kind::kMap)
      continue;
    Container& container = containers_[static_cast<std::size_t>(next.number)];
    if (container.shared)
      continue;
    releasing_.insert(releasing_.end(), container.items.begin(), container.items.end());
    container.items.clear();
    free_.push_back(next.number);
    --live_;
  }
}

enum class DumpWords::Field : std::uint8_t {
  kNotLookedUp,
  kOther,
  kRecord,
  kGroupId,
  kGroup,
  kSeq,
  kP2pSeq,
  kName,
  kCreated,
  kStarted,
  kCompleted,
  kInputs,
  kOutputs,
  kInputTypes,
  kOutputTypes,
  kState,
  kRetired,
  kTimeout,
  kP2p,
  kFrames,
};

DumpWords::Field DumpWords::field_of(DumpValue key) const {
  static constexpr std::array<std::pair<std::string_view, Field>, 18> kNames{{
      {"record_id", Field::kRecord},
      {"pg_id", Field::kGroupId},
      {"process_group", Field::kGroup},
      {"collective_seq_id", Field::kSeq},
      {"p2p_seq_id", Field::kP2pSeq},
      {"profiling_name", Field::kName},
      {"time_created_ns", Field::kCreated},
      {"time_discovered_started_ns", Field::kStarted},
      {"time_discovered_completed_ns", Field::kCompleted},
      {"input_sizes", Field::kInputs},
      {"output_sizes", Field::kOutputs},
      {"input_dtypes", Field::kInputTypes},
      {"output_dtypes", Field::kOutputTypes},
      {"state", Field::kState},
      {"retired", Field::kRetired},
      {"timeout_ms", Field::kTimeout},
      {"is_p2p", Field::kP2p},
      {"frames", Field::kFrames},
  }};
  if (!key.is_text())
    return Field::kOther;
  const auto id = static_cast<std::size_t>(key.number);
  if (id >= fields_.size())
    fields_.resize(id + 64, 0);
  if (fields_[id] == 0) {
    const auto* const at = std::find_if(
        kNames.begin(), kNames.end(),
        [name = values_.text_of(key)](const auto& entry) { return entry.first == name; });
    fields_[id] = static_cast<std::uint8_t>(at == kNames.end() ? Field::kOther : at->second);
  }
  return static_cast<Field>(fields_[id]);
}

std::int64_t DumpWords::integer(DumpValue value, std::int64_t otherwise) const {
  if (value.kind == Kind::kInteger)
    return value.number;
  const std::string_view text = values_.text_of(value);
  std::int64_t number = otherwise;
  std::from_chars(text.data(), text.data() + text.size(), number);
  return number;
}

std::uint64_t DumpWords::elements(DumpValue sizes, std::uint64_t& hash) const {
  std::uint64_t sum = 0;
  for (const DumpValue tensor : values_.items_of(sizes)) {
    std::uint64_t product = 1;
    for (const DumpValue size : values_.items_of(tensor))
      product = times(product, size.kind == Kind::kInteger && size.number > 0
                                   ? static_cast<std::uint64_t>(size.number)
                                   : 0);
    sum = plus(sum, product);
    hash = (hash ^ product) * 0x9E3779B97F4A7C15ULL;
  }
  return sum;
}

DType DumpWords::dtype(DumpValue list) const {
  DType found = DType::kNone;
  for (const DumpValue name : values_.items_of(list)) {
    const DType one = dtype_of(values_.text_of(name));
    found = found == DType::kNone || found == one ? one : DType::kMixed;
  }
  return found;
}

void DumpWords::set(DumpEntry& entry, DumpValue key, DumpValue value) const {
  std::uint64_t unused = 0;
  switch (field_of(key)) {
    case Field::kRecord:
      entry.record = integer(value, -1);
      break;
    case Field::kGroupId:
      entry.group_id = integer(value, -1);
      break;
    case Field::kGroup:
      if (const auto names = values_.items_of(value); names.size() == 2) {
        entry.group = values_.text_of(names[0]);
        entry.description = values_.text_of(names[1]);
      }
      break;
    case Field::kSeq:
      entry.seq = integer(value, -1);
      break;
    case Field::kP2pSeq:
      entry.p2p_seq = integer(value, -1);
      break;
    case Field::kName:
      entry.name = values_.text_of(value);
      break;
    case Field::kCreated:
      entry.created_ns = integer(value, 0);
      break;
    case Field::kStarted:
      entry.started_ns = integer(value, 0);
      break;
    case Field::kCompleted:
      entry.completed_ns = integer(value, 0);
      break;
    case Field::kInputs:
      entry.numel_in = elements(value, entry.counts_hash);
      break;
    case Field::kOutputs:
      entry.numel_out = elements(value, unused);
      break;
    case Field::kInputTypes:
      if (const DType type = dtype(value); type != DType::kNone)
        entry.dtype = type;
      break;
    case Field::kOutputTypes:
      if (entry.dtype == DType::kNone)
        entry.dtype = dtype(value);
      break;
    case Field::kState:
      entry.state = state_of(values_.text_of(value));
      break;
    case Field::kRetired:
      entry.retired = value.kind == Kind::kBool && value.number != 0;
      break;
    case Field::kTimeout:
      entry.timeout_ms = integer(value, -1);
      break;
    case Field::kP2p:
      entry.is_p2p = value.kind == Kind::kBool && value.number != 0;
      break;
    case Field::kFrames:
      entry.frames = value;
      break;
    default:
      break;
  }
}

DumpEntry DumpWords::entry(DumpValue map) const {
  DumpEntry entry;
  const auto items = values_.items_of(map);
  for (std::size_t i = 0; i + 1 < items.size(); i += 2)
    set(entry, items[i], items[i + 1]);
  return entry;
}

DumpValue DumpWords::at(DumpValue map, std::string_view key) const {
  if (map.kind != Kind::kMap)
    return {};
  const auto items = values_.items_of(map);
  for (std::size_t i = 0; i + 1 < items.size(); i += 2) {
    if (items[i].is_text() && values_.text_of(items[i]) == key)
      return items[i + 1];
  }
  return {};
}

DumpHead DumpWords::head(DumpValue root) const {
  DumpHead head;
  head.version = values_.text_of(at(root, "version"));
  const auto groups = values_.items_of(at(root, "pg_config"));
  for (std::size_t i = 0; i + 1 < groups.size(); i += 2) {
    DumpHead::Config config;
    config.name = values_.text_of(groups[i]);
    config.description = values_.text_of(at(groups[i + 1], "desc"));
    const DumpValue ranks = at(groups[i + 1], "ranks");
    config.ranks = ranks_in(values_.text_of(ranks));
    for (const DumpValue rank : values_.items_of(ranks)) {
      const std::int64_t value = integer(rank, -1);
      if (value >= 0 && value <= std::numeric_limits<std::int32_t>::max())
        config.ranks.push_back(static_cast<std::int32_t>(value));
    }
    head.groups.push_back(std::move(config));
  }
  return head;
}

std::uint64_t DumpWords::key_of_frames(DumpValue list) const {
  std::uint64_t key = 1;
  for (const DumpValue frame : values_.items_of(list)) {
    if (!values_.is_shared(frame))
      return 0;
    key = (key ^ static_cast<std::uint64_t>(frame.number)) * 0x9E3779B97F4A7C15ULL;
    key ^= key >> 29;
  }
  return key;
}

std::vector<DumpFrame> DumpWords::frames(DumpValue list) const {
  constexpr std::size_t kFramesMax = 64;
  std::vector<DumpFrame> frames;
  for (const DumpValue frame : values_.items_of(list)) {
    if (frames.size() == kFramesMax)
      break;
    frames.push_back({.function = values_.text_of(at(frame, "name")),
                      .file = values_.text_of(at(frame, "filename")),
                      .line = integer(at(frame, "line"), 0)});
  }
  return frames;
}

}  // namespace lockstep::history
