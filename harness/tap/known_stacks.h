// Stacks that a thread called from before, with their call sites: one of which every frame is where
// it was, and what it was, is the same stack, and need be neither read nor unwound again.
#pragma once

#include <cstdint>

#include "harness/history/format.h"
#include "harness/python/frames.h"
#include "harness/tap/own_memory.h"
#include "harness/tap/stack.h"

#pragma GCC visibility push(hidden)

namespace lockstep::tap {

/// Of the frames of Python code of one thread, at most as many as a call site has.
class KnownPythonStacks {
 public:
  KnownPythonStacks(const python::Layout& layout, std::uint64_t code_type)
      : layout_(layout), code_type_(code_type) {}

  /// 0: not one that is known. `thread`: the state of the calling one.
  [[nodiscard]] std::uint32_t find(std::uint64_t thread) const {
    std::uint64_t frame = 0;
    python::first_frame(layout_, Direct{}, thread, frame);
    const Stack& stack = place_of(frame);
    for (std::uint32_t i = 0; i < stack.count; ++i) {
      const Link& link = stack.links[i];
      if (frame != link.frame || !(read(frame) == link.is))
        return 0;
      frame = link.is.previous;
    }
    return frame == 0 ? stack.site : 0;
  }

  void keep(std::uint64_t thread, std::uint32_t site) const {
    std::uint64_t frame = 0;
    python::first_frame(layout_, Direct{}, thread, frame);
    Stack& stack = place_of(frame);
    stack.site = site;
    for (stack.count = 0; frame != 0; ++stack.count) {
      if (stack.count == history::kFramesMax) {
        stack.count = stack.site = 0;
        return;
      }
      Link& link = stack.links[stack.count];
      link = {frame, read(frame)};
      frame = link.is.previous;
    }
  }

 private:
  /// What tells a frame, and its code from another that came to lie at the same place.
  struct State {
    std::uint64_t previous{}, code{}, instruction{}, name_hash{}, constants{}, lines{};
    std::uint32_t first_line{};
    bool operator==(const State&) const = default;
  };
  struct Link {
    std::uint64_t frame{};
    State is{};
  };
  struct Stack {
    std::uint32_t site{}, count{};
    Link links[history::kFramesMax];
  };

  template <class Value = std::uint64_t>
  static Value at(std::uint64_t address) {
    Value value{};
    python::load(Direct{}, address, value);
    return value;
  }

  /// What stands for a call into the interpreter has a place in the chain, and no more.
  [[nodiscard]] State read(std::uint64_t frame) const {
    State state;
    state.previous = at(frame + layout_.frame_previous);
    python::load_code(layout_, Direct{}, frame, state.code);
    if (state.code == 0 || at(state.code + python::kObjectType) != code_type_ ||
        at<std::uint8_t>(frame + layout_.frame_owner) == python::kOwnedByInterpreter)
      return state;
    state.instruction = at(frame + layout_.frame_instruction);
    state.name_hash = at(at(state.code + layout_.code_name) + python::kTextHash);
    state.constants = at(state.code + python::kCodeConstants);
    state.lines = at(state.code + layout_.code_lines);
    state.first_line = at<std::uint32_t>(state.code + layout_.code_first_line);
    return state;
  }

  /// Those of one function that are called from two lines have two places.
  [[nodiscard]] Stack& place_of(std::uint64_t frame) const {
    constexpr std::uint64_t kStacks = 8;
    static thread_local Stack stacks[kStacks];
    if (frame == 0)
      return stacks[0];
    const std::uint64_t both = (frame >> 4) + (at(frame + layout_.frame_instruction) >> 1);
    return stacks[(both ^ both >> 7) % kStacks];
  }

  const python::Layout& layout_;
  std::uint64_t code_type_;
};

/// Of native frames: the return addresses, and the places on the stack that hold them. From a
/// return address on, the size of its frame is fixed (of what calls alloca(), nearly), and with it
/// where the next one lies; so what is read is a return address, as long as all before it are what
/// they were.
class KnownNativeStack {
 public:
  /// Of the calling thread, by the place of its innermost return address.
  static KnownNativeStack& at(std::uintptr_t place) {
    constexpr std::uintptr_t kStacks = 8;
    static thread_local KnownNativeStack stacks[kStacks];
    return stacks[(place >> 4 ^ place >> 8) % kStacks];
  }

  /// 0: not the one that is known.
  [[nodiscard]] std::uint32_t find(std::uintptr_t place) const {
    if (count_ == 0 || places_[0] != place)
      return 0;
    for (std::uint32_t i = 0; i < count_; ++i) {
      if (word_at(places_[i]) != addresses_[i])
        return 0;
    }
    return site_;
  }

  /// Of the stack as return_addresses() gave it, which begins at `place`.
  void keep(std::uintptr_t place, std::uint32_t site, const void* const* addresses,
            const std::uintptr_t* places, std::uint32_t count) {
    count_ = 0;
    if (count == 0 || places[0] != place)
      return;
    for (std::uint32_t i = 0; i < count; ++i) {
      addresses_[i] = reinterpret_cast<std::uintptr_t>(addresses[i]);
      places_[i] = places[i];
      if (word_at(places_[i]) != addresses_[i])  // Of a signal's frame, or another machine's.
        return;
    }
    count_ = count;
    site_ = site;
  }

 private:
  static std::uintptr_t word_at(std::uintptr_t place) {
    return *reinterpret_cast<const std::uintptr_t*>(place);
  }

  std::uint32_t site_{}, count_{};
  std::uintptr_t addresses_[kReturnsMax]{}, places_[kReturnsMax]{};
};

}  // namespace lockstep::tap

#pragma GCC visibility pop
