// The variables of a Python frame that hold small integers, read as raw memory like the frames
// themselves: `epoch` and `step` of the loops that it is in.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "harness/python/frames.h"

namespace lockstep::python {

/// The value of an int of one digit (less than 2^30, either sign); nothing if it is anything else.
template <class Memory>
std::optional<std::int64_t> small_integer(const Layout& layout, const Memory& memory,
                                          std::uint64_t object, std::uint64_t int_type) {
  std::uint64_t type = 0;
  std::int64_t size = 0;
  std::uint32_t digit = 0;
  if (object == 0 || !load(memory, object + kObjectType, type) || type != int_type ||
      !load(memory, object + kIntSize, size) || !load(memory, object + kIntDigit, digit))
    return std::nullopt;
  if (layout.minor >= 12) {  // Digits << 3 | sign: 0 positive, 1 zero, 2 negative.
    const std::int64_t sign = size & 3;
    size = sign == 1 ? 0 : sign == 2 ? -(size >> 3) : size >> 3;
  }
  if (size < -1 || size > 1)
    return std::nullopt;
  return size * static_cast<std::int64_t>(digit);
}

/// Calls `take(name address, object)` with what a function's own variables hold, at most `capacity`
/// of them: a parameter or a local that no inner function uses.
template <class Memory, class Take>
void for_each_local(const Layout& layout, const Memory& memory, std::uint64_t frame,
                    std::uint64_t code, std::uint32_t capacity, Take take) {
  std::uint32_t count = 0;
  std::uint64_t names = 0;
  if (!load(memory, code + layout.code_variables, count) ||
      !load(memory, code + kCodeVariableNames, names))
    return;
  for (std::uint32_t i = 0; i < count && i < capacity; ++i) {
    std::uint64_t word = 0;
    if (!load(memory, frame + layout.frame_variables + 8ULL * i, word))
      continue;
    if (const std::uint64_t object = object_of(layout, word); object != 0)
      take(names + layout.tuple_items + 8ULL * i, object);
  }
}

/// Calls `take(address of the key, value)` for the entries of a dictionary, at most `capacity`.
template <class Memory, class Take>
void for_each_entry(const Memory& memory, std::uint64_t dictionary, std::uint64_t dict_type,
                    std::uint32_t capacity, Take take) {
  std::uint64_t type = 0, keys = 0, count = 0;
  std::uint8_t log_index = 0, kind = 0;
  if (dictionary == 0 || !load(memory, dictionary + kObjectType, type) || type != dict_type ||
      !load(memory, dictionary + kDictKeys, keys) ||
      !load(memory, keys + kKeysLogIndexBytes, log_index) ||
      !load(memory, keys + kKeysKind, kind) || !load(memory, keys + kKeysCount, count) ||
      log_index > 32 || (kind != kGeneralKeys && kind != kTextKeys))
    return;
  const std::uint64_t hash = kind == kGeneralKeys ? 8 : 0;
  std::uint64_t entry = keys + kKeysIndex + (1ULL << log_index) + hash;
  for (std::uint64_t i = 0; i < count && i < capacity; ++i, entry += hash + 16) {
    std::uint64_t object = 0;
    if (load(memory, entry + 8, object) && object != 0)
      take(entry, object);
  }
}

/// As for_each_local(), of a module's own code, whose variables lie in a dictionary.
template <class Memory, class Take>
void for_each_global(const Layout& layout, const Memory& memory, std::uint64_t frame,
                     std::uint64_t dict_type, std::uint32_t capacity, Take take) {
  std::uint64_t dictionary = 0;
  if (load(memory, frame + layout.frame_names, dictionary))
    for_each_entry(memory, dictionary, dict_type, capacity, take);
}

}  // namespace lockstep::python
