// The return addresses of the calling thread, innermost first.
#pragma once

#include <unwind.h>

#include <cstdint>

#include "harness/history/format.h"

namespace lockstep::tap {

/// Of a call site, and the few frames of ours inside of it.
constexpr std::uint32_t kReturnsMax = history::kFramesMax + 4;

/// At most `capacity`, leaving out the innermost `skip` frames (this function's caller is frame 0).
/// `places`: where on the stack they lie, on x86-64. Cost: about 40 ns a frame; no lock, nothing
/// allocated.
__attribute__((noinline)) inline std::uint32_t return_addresses(const void** addresses,
                                                                std::uint32_t capacity,
                                                                std::uint32_t skip,
                                                                std::uintptr_t* places = nullptr) {
  struct Walk {
    const void** addresses{};
    std::uintptr_t* places{};
    std::uint32_t capacity{}, skip{}, count{};
  } walk{addresses, places, capacity, skip + 1, 0};
  _Unwind_Backtrace(
      [](_Unwind_Context* context, void* data) {
        auto& at = *static_cast<Walk*>(data);
        const auto* const pc = reinterpret_cast<const void*>(_Unwind_GetIP(context));
        if (at.skip != 0) {
          --at.skip;
          return _URC_NO_REASON;
        }
        if (pc == nullptr || at.count == at.capacity)
          return _URC_END_OF_STACK;
        if (at.places != nullptr)  // The stack pointer once the call has come back.
          at.places[at.count] = _Unwind_GetCFA(context) - sizeof(void*);
        at.addresses[at.count++] = pc;
        return _URC_NO_REASON;
      },
      &walk);
  return walk.count;
}

}  // namespace lockstep::tap
