// What the watch remembers of a tensor in place of its elements: a digest of all its bytes, and of
// a slice of them sums by which two ranks' tensors can be compared; see history::WatchValue.
//
// By plain loads: no operator is called, so that nothing that watches operators sees any.
#pragma once

#include <c10/core/ScalarType.h>
#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <cmath>
#include <cstdint>
#include <cstring>

#include "harness/history/watch_format.h"

#pragma GCC visibility push(hidden)

namespace lockstep::tap {

struct Digest {
  history::WatchValue value{};
  bool finite{true};
};

/// An element is not finite where all bits of its exponent are set. Of a word full of elements:
/// these bits, and the lowest one of each exponent, which carries into the bit above it then.
struct Exponents {
  std::uint64_t mask{}, lowest{}, above{};
};

inline Exponents exponents_of(at::ScalarType type) {
  switch (type) {
    case at::kDouble:
      return {0x7ff0000000000000ULL, 0x0010000000000000ULL, 0x8000000000000000ULL};
    case at::kFloat:
      return {0x7f8000007f800000ULL, 0x0080000000800000ULL, 0x8000000080000000ULL};
    case at::kBFloat16:
      return {0x7f807f807f807f80ULL, 0x0080008000800080ULL, 0x8000800080008000ULL};
    case at::kHalf:
      return {0x7c007c007c007c00ULL, 0x0400040004000400ULL, 0x8000800080008000ULL};
    default:
      return {};
  }
}

/// Four lanes, so that it runs at the speed of the memory.
inline std::uint64_t digest_of_bytes(const char* bytes, std::size_t count,
                                     const Exponents& exponents, bool& finite) {
  std::uint64_t lanes[4] = {0x9e3779b97f4a7c15ULL ^ count, 0xc2b2ae3d27d4eb4fULL,
                            0x165667b19e3779f9ULL, 0x27d4eb2f165667c5ULL};
  std::uint64_t seen = 0;
  const auto take = [&](std::uint64_t& lane, std::uint64_t word) {
    lane = (lane ^ word) * 0x9fb21c651e98df25ULL;
    lane ^= lane >> 29;
    seen |= (word & exponents.mask) + exponents.lowest;
  };
  std::size_t at = 0;
  for (; at + 32 <= count; at += 32) {
    std::uint64_t words[4];
    std::memcpy(words, bytes + at, sizeof words);
    for (int i = 0; i < 4; ++i)
      take(lanes[i], words[i]);
  }
  for (; at < count; at += 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes + at, count - at < 8 ? count - at : 8);
    take(lanes[0], word);
  }
  finite = (seen & exponents.above) == 0;
  std::uint64_t digest = count;
  for (const std::uint64_t lane : lanes) {
    digest = (digest ^ lane) * 0x9e3779b97f4a7c15ULL;
    digest ^= digest >> 32;
  }
  return digest;
}

template <class Element>
void add_slice(const char* bytes, std::uint64_t numel, history::WatchValue& value) {
  const std::uint64_t stride = (numel + history::kWatchSlice - 1) / history::kWatchSlice;
  double squares = 0;
  std::uint64_t signs = 0x2545f4914f6cdd1dULL;
  for (std::uint64_t i = 0; i < numel; i += stride) {
    Element element;
    std::memcpy(&element, bytes + i * sizeof element, sizeof element);
    const auto x = static_cast<double>(
        static_cast<std::conditional_t<sizeof(Element) == 8, double, float>>(element));
    signs = signs * 6364136223846793005ULL + 1442695040888963407ULL;
    value.sums[0] += (signs >> 62 & 1) != 0 ? x : -x;
    value.sums[1] += (signs >> 63) != 0 ? x : -x;
    squares += x * x;
  }
  value.norm = std::sqrt(squares);
}

/// Of `numel` elements that lie side by side.
inline Digest digest_of_elements(const char* bytes, std::uint64_t numel, at::ScalarType type) {
  Digest digest;
  digest.value.digest =
      digest_of_bytes(bytes, numel * c10::elementSize(type), exponents_of(type), digest.finite);
  if (numel == 0)
    return digest;
  if (type == at::kFloat)
    add_slice<float>(bytes, numel, digest.value);
  else if (type == at::kDouble)
    add_slice<double>(bytes, numel, digest.value);
  else if (type == at::kBFloat16)
    add_slice<c10::BFloat16>(bytes, numel, digest.value);
  else if (type == at::kHalf)
    add_slice<c10::Half>(bytes, numel, digest.value);
  return digest;
}

}  // namespace lockstep::tap

#pragma GCC visibility pop
