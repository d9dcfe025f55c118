// A time that may not be known, in the room of one that is: of millions of calls each has two.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>

namespace lockstep {

/// Nanoseconds of the monotonic clock, or nothing; used as std::optional<std::uint64_t> is.
class OptionalTime {
 public:
  OptionalTime() = default;
  // NOLINTBEGIN(google-explicit-constructor): as of the optional in whose place it stands.
  OptionalTime(std::nullopt_t) {}
  OptionalTime(std::uint64_t ns) : ns_(ns) {}
  OptionalTime(std::optional<std::uint64_t> ns) : ns_(ns.value_or(kNone)) {}
  operator std::optional<std::uint64_t>() const {
    return has_value() ? std::optional(ns_) : std::nullopt;
  }
  // NOLINTEND(google-explicit-constructor)

  [[nodiscard]] bool has_value() const { return ns_ != kNone; }
  explicit operator bool() const { return has_value(); }
  std::uint64_t operator*() const { return ns_; }
  std::uint64_t& operator*() { return ns_; }
  /// Throws std::bad_optional_access where it is not known.
  [[nodiscard]] std::uint64_t value() const { return std::optional<std::uint64_t>(*this).value(); }
  [[nodiscard]] std::uint64_t value_or(std::uint64_t other) const {
    return has_value() ? ns_ : other;
  }
  void reset() { ns_ = kNone; }
  friend bool operator==(const OptionalTime&, const OptionalTime&) = default;

 private:
  static constexpr std::uint64_t kNone = std::numeric_limits<std::uint64_t>::max();
  std::uint64_t ns_{kNone};
};

}  // namespace lockstep
