// Where CPython keeps the frames of its threads: offsets in bytes, on 64-bit machines, checked with
// offsetof against the headers of 3.11.7, 3.12.1, 3.13.0, 3.14.10 and 3.15.2. Whoever uses them
// compares first what they read with what the interpreter itself says: another build may differ.
#pragma once

#include <cstdint>

namespace lockstep::python {

struct Layout {
  int minor{};  ///< Of Python 3.
  // PyThreadState. Before 3.13 the current frame lies in a further structure.
  std::uint16_t thread_frame{};
  bool thread_has_cframe{};
  std::uint16_t cframe_frame{};
  std::uint16_t thread_next{}, thread_native_id{};
  // _PyInterpreterFrame
  std::uint16_t frame_code{}, frame_previous{}, frame_instruction{}, frame_owner{}, frame_names{};
  std::uint16_t frame_variables{};  ///< One word each.
  std::uint8_t frame_tags{};  ///< Bits of such a word, and of frame_code, that are no address.
  // PyCodeObject
  std::uint16_t code_first_line{}, code_file{}, code_name{}, code_lines{}, code_instructions{};
  std::uint16_t code_variables{};
  // Text of a PyUnicodeObject that is ASCII, and of another.
  std::uint16_t text_ascii{}, text_wide{};
  std::uint16_t tuple_items{};
  // From the runtime to the first thread.
  std::uint16_t runtime_main_interpreter{}, interpreter_threads{};
  /// Where a thread keeps its stack of exceptions that are handled.
  std::uint16_t thread_exceptions{};
};

constexpr Layout kLayouts[] = {
    {11, 56,  true, 8,   8,   160, 32, 48, 56, 69, 24, 72, 0,
     72, 112, 128,  136, 184, 76,  48, 72, 24, 48, 16, 120},
    {12, 56,  true, 0,   8,   144, 0,  8,  56, 70, 40, 72, 0,
     68, 112, 128,  136, 192, 72,  40, 56, 24, 48, 72, 104},
    {13, 72,  false, 0,   8,   160, 0,  8,  56, 70,  40,   72, 0,
     68, 112, 128,   136, 200, 72,  40, 56, 24, 640, 7344, 120},
    {14, 72,  false, 0,   8,   160, 0,  8,  56, 74,  40,   80, 3,
     68, 112, 128,   136, 208, 72,  40, 56, 32, 816, 7344, 120},
    {15, 72,  false, 0,   8,   184, 0,  8,  56, 74,  40,   80, 3,
     68, 112, 128,   136, 208, 72,  40, 56, 32, 944, 7336, 144},
};

/// Null: a version whose layout is not known.
constexpr const Layout* layout_of(int minor) {
  for (const Layout& layout : kLayouts) {
    if (layout.minor == minor)
      return &layout;
  }
  return nullptr;
}

/// The object that a word of a frame leads to; 0: none, or a number that the word itself is.
constexpr std::uint64_t object_of(const Layout& layout, std::uint64_t word) {
  const std::uint64_t tags = layout.frame_tags;
  return tags != 0 && (word & tags) == tags ? 0 : word & ~tags;
}

/// Whether it is built without the lock, which lays out all else in another way.
constexpr int kTellsLockSince = 13;
constexpr std::uint16_t kRuntimeWithoutLock = 16;

// The same in all of them.
constexpr std::uint16_t kObjectType = 8;
constexpr std::uint16_t kCodeConstants = 24, kCodeNames = 32, kCodeVariableNames = 96;
constexpr std::uint16_t kGlobalsBeforeNames = 16;  // Where a frame has those of its module.
constexpr std::uint16_t kListLength = 16, kListItems = 24;  // The items lie elsewhere.
constexpr std::uint16_t kTextLength = 16, kTextHash = 24, kTextState = 32;
constexpr std::uint16_t kBytesLength = 16, kBytesData = 32;

constexpr std::uint16_t kIntSize = 16, kIntDigit = 24;
// Of a dictionary: where its keys lie. Of its keys: the size of the index (a power of two) behind
// which the entries lie, what kind of entries, how many.
constexpr std::uint16_t kDictKeys = 32;
constexpr std::uint16_t kKeysLogIndexBytes = 9, kKeysKind = 10, kKeysCount = 24, kKeysIndex = 32;
constexpr std::uint8_t kGeneralKeys = 0, kTextKeys = 1;  // Hash, key, value; key, value.

/// Owner of a frame that stands for a call into the interpreter and not for code (since 3.12).
constexpr std::uint8_t kOwnedByInterpreter = 3;

/// In the word at kTextState.
constexpr std::uint32_t text_kind(std::uint32_t state) { return state >> 2 & 7; }  // 1, 2, 4 bytes
constexpr bool text_is_compact(std::uint32_t state) { return (state >> 5 & 1) != 0; }
constexpr bool text_is_ascii(std::uint32_t state) { return (state >> 6 & 1) != 0; }

}  // namespace lockstep::python
