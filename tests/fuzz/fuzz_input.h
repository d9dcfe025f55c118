// How a fuzzer's input becomes a process file: the parts of the header that mean something, then
// the areas. So an input is a few hundred bytes, not the 4.5 MiB of a real file.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <span>
#include <vector>

#include "harness/history/reader.h"

namespace lockstep::history {

constexpr std::size_t kIdentityBytes = 152;  // FileHeader up to its texts.
constexpr std::size_t kCountersBytes = 176;  // From next_record to closed.
static_assert(offsetof(FileHeader, boot_id) == kIdentityBytes);
static_assert(offsetof(FileHeader, closed) + 8 - offsetof(FileHeader, next_record) ==
              kCountersBytes);

inline std::vector<std::byte> expand(std::span<const std::byte> input) {
  std::vector<std::byte> file(sizeof(FileHeader));
  const auto take = [&](std::size_t at, std::size_t count) {
    count = std::min(count, input.size());
    if (count != 0)
      std::memcpy(file.data() + at, input.data(), count);
    input = input.subspan(count);
  };
  take(0, kIdentityBytes);
  take(offsetof(FileHeader, next_record), kCountersBytes);
  file.insert(file.end(), input.begin(), input.end());
  return file;
}

inline std::vector<std::byte> shrink(std::span<const std::byte> file) {
  std::vector<std::byte> input(file.begin(), file.begin() + kIdentityBytes);
  const auto counters = file.subspan(offsetof(FileHeader, next_record), kCountersBytes);
  input.insert(input.end(), counters.begin(), counters.end());
  input.insert(input.end(), file.begin() + sizeof(FileHeader), file.end());
  return input;
}

/// What every reader of a Process relies on.
inline void require_sound(const Process& process) {
  const auto require = [](bool holds) {
    if (!holds)
      std::abort();
  };
  for (std::size_t i = 0; i < process.collectives.size(); ++i) {
    const Collective& collective = process.collectives[i];
    require(i == 0 || process.collectives[i - 1].record < collective.record);
    require(collective.group < process.groups.size());
    require(collective.site < process.sites.size());
    require(collective.op < Op::kCount && collective.dtype < DType::kCount &&
            collective.reduce_op < ReduceOp::kCount);
  }
  for (const Group& group : process.groups) {
    require(group.site < process.sites.size());
    require(group.last_signatures.size() <= kLastSignatures);
    require(group.digests.size() == group.site_digests.size());
  }
  require(!process.closed || !process.damaged);
}

}  // namespace lockstep::history
