// The exception that a Python thread is handling, in an `except` or a `finally`, read as raw memory
// like the frames (frames.h). Offsets checked with offsetof against the same headers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "harness/python/frames.h"

#pragma GCC visibility push(hidden)

namespace lockstep::python {

// The same in all of them.
constexpr std::uint16_t kHandledValue = 0, kHandledOuter = 8;
constexpr std::uint16_t kExceptionArguments = 24, kExceptionTraceback = 40;
constexpr std::uint16_t kTracebackNext = 16, kTracebackFrame = 24, kTracebackInstruction = 32;
constexpr std::uint16_t kObjectOfFrame = 24;  // Of a frame object: where its frame lies.
constexpr std::uint16_t kTupleSize = 16;
constexpr std::uint16_t kTypeName = 24, kTypeBase = 256;

/// The innermost exception that is being handled; 0 if there is none. A generator that the thread
/// is in has a place of its own in front.
template <class Memory>
std::uint64_t handled_exception(const Layout& layout, const Memory& memory, std::uint64_t thread) {
  constexpr int kDepthMax = 256;
  std::uint64_t item = 0;
  if (!load(memory, thread + layout.thread_exceptions, item))
    return 0;
  for (int i = 0; item != 0 && i < kDepthMax; ++i) {
    std::uint64_t value = 0, type = 0, arguments = 0;
    if (!load(memory, item + kHandledValue, value) ||
        (value != 0 && !load(memory, value + kObjectType, type)))
      return 0;
    char name[16] = "";
    // (None stands for nothing there.)
    const bool is_none = value != 0 && load(memory, type + kTypeName, arguments) &&
                         memory.read(arguments, name, 9) && std::memcmp(name, "NoneType", 9) == 0;
    if (value != 0 && !is_none)
      return value;
    if (!load(memory, item + kHandledOuter, item))
      return 0;
  }
  return 0;
}

/// Calls `take(RawFrame)` for each frame that the exception passed, the one that handles it first,
/// the one that raised it last; until it answers false.
template <class Memory, class Take>
bool for_each_passed(const Layout& layout, const Memory& memory, std::uint64_t exception,
                     Take take) {
  constexpr int kFramesMax = 4096;
  std::uint64_t entry = 0;
  if (!load(memory, exception + kExceptionTraceback, entry))
    return false;
  for (int i = 0; entry != 0 && i < kFramesMax; ++i) {
    std::uint64_t object = 0, frame = 0;
    std::int32_t instruction = 0;
    RawFrame raw;
    if (!load(memory, entry + kTracebackFrame, object) ||
        !load(memory, entry + kTracebackInstruction, instruction) ||
        !load(memory, object + kObjectOfFrame, frame) ||
        !load_code(layout, memory, frame, raw.code))
      return false;
    raw.instruction = raw.code + layout.code_instructions + static_cast<std::uint64_t>(instruction);
    if (!take(raw))
      return true;
    if (!load(memory, entry + kTracebackNext, entry))
      return false;
  }
  return true;
}

/// The name of the type of an object, with a zero at its end; false if it cannot be read.
template <class Memory>
bool type_name(const Memory& memory, std::uint64_t object, char* to, std::size_t capacity) {
  std::uint64_t type = 0, name = 0;
  if (!load(memory, object + kObjectType, type) || !load(memory, type + kTypeName, name))
    return false;
  for (std::size_t i = 0; i + 1 < capacity; ++i) {
    if (!memory.read(name + i, to + i, 1))
      return false;
    if (to[i] == 0)
      return i != 0;
  }
  to[capacity - 1] = 0;
  return true;
}

}  // namespace lockstep::python

#pragma GCC visibility pop
