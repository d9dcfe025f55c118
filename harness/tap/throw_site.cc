#include "harness/tap/throw_site.h"

#include <dlfcn.h>

#include <array>
#include <atomic>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <typeinfo>

#include "harness/history/writer_sites.h"
#include "harness/tap/stack.h"

namespace lockstep::tap {
namespace {

constexpr std::size_t kThrows = 32;

struct Throw {
  std::atomic<const void*> object{};
  std::uint32_t count{};
  std::array<const void*, history::kFramesMax> addresses{};
};

// Of all threads: an exception may be caught on another one than it was thrown on.
std::array<Throw, kThrows> throws;
std::atomic<std::size_t> next_throw{};

// A frame of its own, which is left out with that of __cxa_throw.
__attribute__((noinline)) void remember(const void* object) {
  Throw& slot = throws[next_throw.fetch_add(1, std::memory_order_relaxed) % kThrows];
  slot.object.store(nullptr, std::memory_order_relaxed);
  slot.count = return_addresses(slot.addresses.data(), history::kFramesMax, /*skip=*/2);
  slot.object.store(object, std::memory_order_release);
}

const void* object_of(const std::exception_ptr& exception) {
  static_assert(sizeof exception ==
                sizeof(void*));  // libstdc++: the object's address and nothing else.
  const void* object = nullptr;
  std::memcpy(&object, &exception, sizeof object);
  return object;
}

}  // namespace

std::vector<ThrowFrame> throw_site(const std::exception_ptr& exception) {
  std::vector<ThrowFrame> frames;
  const void* const object = object_of(exception);
  const std::size_t newest = next_throw.load(std::memory_order_acquire);
  for (std::size_t i = 0; object != nullptr && i < kThrows; ++i) {
    const Throw& slot = throws[(newest + 2 * kThrows - 1 - i) %
                               kThrows];  // Addresses are used again: newest first.
    if (slot.object.load(std::memory_order_acquire) != object)
      continue;
    std::array<history::SiteFrame, history::kFramesMax> resolved;
    char main_path[PATH_MAX];
    history::resolve_return_addresses(slot.addresses.data(), slot.count, resolved.data(), main_path,
                                      sizeof main_path);
    for (std::uint32_t f = 0; f < slot.count; ++f)
      frames.push_back({resolved[f].module, resolved[f].offset});
    break;
  }
  return frames;
}

}  // namespace lockstep::tap

extern "C" __attribute__((noreturn, visibility("default"), noinline)) void __cxa_throw(
    void* object, std::type_info* type, void (*destroy)(void*)) {
  using Throws = void (*)(void*, std::type_info*, void (*)(void*));
  static const auto real = reinterpret_cast<Throws>(dlsym(RTLD_NEXT, "__cxa_throw"));
  lockstep::tap::remember(object);
  if (real != nullptr)
    real(object, type, destroy);
  std::abort();
}
