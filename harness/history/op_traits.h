// What each operation asks of the members of its group: a row of op_traits.inc.
#pragma once

#include <array>
#include <cstdint>

#include "harness/history/vocabulary.h"

namespace lockstep::history {

/// Which sizes are equal on all members. In place or not, `kExtent` is what the operation is about.
enum class Alike : std::uint8_t {
  kNone,  ///< Lists on the root only, or splits that differ pair by pair: see Sums.
  kExtent,
  kExtentAndCounts,
  kOut,       ///< Members may hand in different sizes; what they receive is alike.
  kOutAndIn,  ///< Of two calls of this very form; of others what they receive.
  kIn,
};

/// What all members hand in and receive must add up to.
enum class Sums : std::uint8_t {
  kNone,
  kInIsEachOut,  ///< Each receives what all hand in; gather: only the root does.
  kOutIsEachIn,
  kInIsOut,
};

/// Whom a member has waited for when its part is complete.
enum class WaitsFor : std::uint8_t {
  kUnknown,
  kAll,
  kAllIfAnything,  ///< All, where there was an element to get.
  kAllOnRoot,      ///< The root for all, the others for nobody.
  kNobody,         ///< But the root: a sender may be done before the others have come.
};

struct OpTraits {
  Op op{};
  Op family{};  ///< Forms of one operation that a backend matches with each other.
  bool rooted{}, reduces{}, has_tensors{};
  Alike alike{};
  Sums sums{};
  WaitsFor waits_for{};
};

#define ROW(op, family, rooted, reduces, tensors, alike, sums, waits_for) \
  OpTraits{Op::op,  Op::family,   rooted,     reduces,                    \
           tensors, Alike::alike, Sums::sums, WaitsFor::waits_for},
inline constexpr std::array kOpTraits{
#include "harness/history/op_traits.inc"
};
#undef ROW

constexpr const OpTraits& traits_of(Op op) {
  const auto row = static_cast<std::size_t>(op);
  return kOpTraits[row < kOpTraits.size() ? row : 0];
}

static_assert([] {
  for (std::size_t row = 0; row < kOpTraits.size(); ++row) {
    if (kOpTraits[row].op != static_cast<Op>(row))
      return false;
  }
  return kOpTraits.size() == static_cast<std::size_t>(Op::kCount);
}());

}  // namespace lockstep::history
