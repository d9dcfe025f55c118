// The Python frames of one thread, read as raw memory: no GIL, no reference count, nothing that the
// interpreter could notice. The memory may be our own or another process's:
//
//   struct Memory { bool read(std::uint64_t address, void* to, std::size_t bytes) const; };
//
// A frame that is on a stack keeps its code object alive, and what is read of a code object never
// changes; so while the thread is inside a call of C the answer is exact.
//
// Header-only, C++17, standard library only: the tap is compiled on the user's host.
#pragma once

#include <cstddef>
#include <cstdint>

#include "harness/python/layout.h"

#pragma GCC visibility push(hidden)

namespace lockstep::python {

struct RawFrame {
  std::uint64_t code{};
  std::uint64_t instruction{};
};

/// What stands in the source for a frame.
struct Position {
  std::uint32_t first_line{};  ///< Of the function.
  std::uint32_t offset{};      ///< Of the instruction in the function, in bytes.
  std::int32_t line{};         ///< 0: the instruction has none.
  /// With the file, the same in every process that runs the same source.
  [[nodiscard]] std::uint64_t packed() const { return std::uint64_t{first_line} << 32 | offset; }
};

template <class Value, class Memory>
bool load(const Memory& memory, std::uint64_t address, Value& value) {
  return memory.read(address, &value, sizeof value);
}

/// The innermost frame of a thread; 0: it has none. False: that could not be read.
template <class Memory>
bool first_frame(const Layout& layout, const Memory& memory, std::uint64_t thread,
                 std::uint64_t& frame) {
  return load(memory, thread + layout.thread_frame, frame) &&
         (!layout.thread_has_cframe || load(memory, frame + layout.cframe_frame, frame));
}

/// The code of a frame, or what it holds in its place.
template <class Memory>
bool load_code(const Layout& layout, const Memory& memory, std::uint64_t frame,
               std::uint64_t& code) {
  std::uint64_t word = 0;
  const bool loaded = load(memory, frame + layout.frame_code, word);
  code = object_of(layout, word);
  return loaded;
}

/// Calls `take(frame address, RawFrame)`, innermost first, until it answers false. `code_type` is
/// the address of PyCode_Type: a frame may hold something else. False: not all could be read.
template <class Memory, class Take>
bool walk(const Layout& layout, const Memory& memory, std::uint64_t thread, std::uint64_t code_type,
          Take take) {
  constexpr int kFramesMax = 1 << 16;  // A chain that was overwritten may be a circle.
  std::uint64_t frame = 0;
  if (!first_frame(layout, memory, thread, frame))
    return false;
  for (int i = 0; frame != 0 && i < kFramesMax; ++i) {
    std::uint64_t code = 0, type = 0;
    std::uint8_t owner = 0;
    if (!load_code(layout, memory, frame, code) ||
        !load(memory, frame + layout.frame_owner, owner) ||
        (code != 0 && !load(memory, code + kObjectType, type)))
      return false;
    if (type == code_type && owner != kOwnedByInterpreter) {
      RawFrame raw{code, 0};
      if (!load(memory, frame + layout.frame_instruction, raw.instruction))
        return false;
      if (!take(frame, raw))
        return true;
    }
    if (!load(memory, frame + layout.frame_previous, frame))
      return false;
  }
  return true;
}

/// The same into an array; of more than `capacity` the innermost, and the outermost in the last
/// place: it says what the thread is.
template <class Memory>
bool walk(const Layout& layout, const Memory& memory, std::uint64_t thread, std::uint64_t code_type,
          RawFrame* frames, std::uint32_t capacity, std::uint32_t& count) {
  count = 0;
  return walk(layout, memory, thread, code_type, [&](std::uint64_t, const RawFrame& raw) {
    frames[count < capacity ? count++ : capacity - 1] = raw;
    return true;
  });
}

/// The bytes of a line table, one after the other.
template <class Memory>
class LineTable {
 public:
  LineTable(const Memory& memory, std::uint64_t begin, std::uint64_t bytes)
      : memory_(memory), next_(begin), end_(begin + bytes) {}

  [[nodiscard]] bool at_end() const { return failed_ || (at_ == filled_ && next_ >= end_); }
  [[nodiscard]] bool failed() const { return failed_; }

  std::uint8_t byte() {
    if (at_ == filled_ && !fill())
      return 0;
    return buffer_[at_++];
  }
  /// Six bits a byte, the lowest first; bit 6: one more follows.
  std::uint32_t number() {
    std::uint32_t value = 0;
    for (unsigned shift = 0; shift < 32; shift += 6) {
      const std::uint8_t part = byte();
      value |= static_cast<std::uint32_t>(part & 63) << shift;
      if ((part & 64) == 0)
        break;
    }
    return value;
  }
  std::int32_t signed_number() {
    const std::uint32_t value = number();
    const auto magnitude = static_cast<std::int32_t>(value >> 1);
    return (value & 1) != 0 ? -magnitude : magnitude;
  }

 private:
  bool fill() {
    const std::uint64_t left = next_ < end_ ? end_ - next_ : 0;
    filled_ = static_cast<std::uint32_t>(left < sizeof buffer_ ? left : sizeof buffer_);
    at_ = 0;
    failed_ |= filled_ == 0 || !memory_.read(next_, buffer_, filled_);
    if (failed_)
      filled_ = 0;
    next_ += filled_;
    return !failed_;
  }

  const Memory& memory_;
  std::uint64_t next_, end_;
  std::uint32_t at_ = 0, filled_ = 0;
  bool failed_ = false;
  std::uint8_t buffer_[256] = {};
};

/// The line of the instruction at `offset`; 0 if it has none. Source: CPython,
/// Objects/locations.md.
template <class Memory>
std::int32_t line_at(LineTable<Memory>& table, std::uint32_t first_line, std::uint32_t offset) {
  auto line = static_cast<std::int32_t>(first_line);
  std::uint32_t end = 0;
  while (!table.at_end()) {
    const std::uint8_t head = table.byte();
    const unsigned form = head >> 3 & 15;
    end += 2U * ((head & 7U) + 1U);  // Code units are two bytes.
    if (form == 13 || form == 14)
      line += table.signed_number();
    else if (form >= 10 && form <= 12)
      line += static_cast<std::int32_t>(form - 10);
    if (form == 14) {  // End line, column, end column.
      for (int i = 0; i < 3; ++i)
        table.number();
    } else if (form >= 10 && form <= 12) {
      table.byte();
      table.byte();
    } else if (form < 10) {
      table.byte();
    }
    if (offset < end)
      return form == 15 || table.failed() ? 0 : line;
  }
  return 0;
}

template <class Memory>
bool position_of(const Layout& layout, const Memory& memory, const RawFrame& frame,
                 Position& position) {
  std::uint64_t lines = 0, bytes = 0;
  position.offset =
      static_cast<std::uint32_t>(frame.instruction - frame.code - layout.code_instructions);
  if (!load(memory, frame.code + layout.code_first_line, position.first_line) ||
      !load(memory, frame.code + layout.code_lines, lines) ||
      !load(memory, lines + kBytesLength, bytes))
    return false;
  LineTable<Memory> table(memory, lines + kBytesData, bytes);
  position.line = line_at(table, position.first_line, position.offset);
  return !table.failed();
}

/// The string whose address lies at `address`, as UTF-8 with a zero at its end, cut to `capacity`.
/// Returns the bytes written, the zero included; 0 if it could not be read.
template <class Memory>
std::size_t text_at(const Layout& layout, const Memory& memory, std::uint64_t address, char* to,
                    std::size_t capacity) {
  std::uint64_t text = 0, length = 0;
  std::uint32_t state = 0;
  if (!load(memory, address, text) || !load(memory, text + kTextLength, length) ||
      !load(memory, text + kTextState, state) || !text_is_compact(state) || capacity == 0)
    return 0;
  if (text_is_ascii(state)) {
    const std::size_t bytes =
        length < capacity - 1 ? static_cast<std::size_t>(length) : capacity - 1;
    to[bytes] = 0;
    return memory.read(text + layout.text_ascii, to, bytes) ? bytes + 1 : 0;
  }
  const std::uint32_t kind = text_kind(state);
  if (kind != 1 && kind != 2 && kind != 4)
    return 0;
  std::size_t used = 0;
  for (std::uint64_t i = 0; i < length && used + 5 <= capacity; ++i) {
    std::uint32_t c = 0;  // Little endian, so a narrow character fills the low bytes.
    if (!memory.read(text + layout.text_wide + i * kind, &c, kind))
      return 0;
    const int more = c < 0x80 ? 0 : c < 0x800 ? 1 : c < 0x10000 ? 2 : 3;
    to[used++] = static_cast<char>(more == 0   ? c
                                   : more == 1 ? 0xc0 | c >> 6
                                   : more == 2 ? 0xe0 | c >> 12
                                               : 0xf0 | c >> 18);
    for (int shift = 6 * (more - 1); shift >= 0; shift -= 6)
      to[used++] = static_cast<char>(0x80 | (c >> shift & 0x3f));
  }
  to[used] = 0;
  return used + 1;
}

}  // namespace lockstep::python

#pragma GCC visibility pop
