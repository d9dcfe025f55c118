// A rank, and a set of ranks that prints itself as people write it: "0-2,4-7".
#pragma once

#include <compare>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

namespace lockstep {

/// A global rank, 0 to world size - 1. "No rank" is std::optional<Rank>: rank 0 is not false.
struct Rank {
  std::int32_t value{};
  friend constexpr auto operator<=>(Rank, Rank) = default;
};

/// Ordered, without duplicates.
class RankSet {
 public:
  RankSet() = default;
  RankSet(std::initializer_list<Rank> ranks);
  /// All ranks of a world of `size`.
  static RankSet all(std::int32_t size);

  void insert(Rank rank);
  void erase(Rank rank);
  [[nodiscard]] bool contains(Rank rank) const;
  [[nodiscard]] bool empty() const { return ranks_.empty(); }
  [[nodiscard]] std::size_t size() const { return ranks_.size(); }
  [[nodiscard]] auto begin() const { return ranks_.begin(); }
  [[nodiscard]] auto end() const { return ranks_.end(); }
  /// Members of this set that are not in `other`.
  [[nodiscard]] RankSet minus(const RankSet& other) const;
  /// "0-2,4-7"; "none" for the empty set.
  [[nodiscard]] std::string to_string() const;

  friend bool operator==(const RankSet&, const RankSet&) = default;

 private:
  std::vector<Rank> ranks_;  // sorted
};

}  // namespace lockstep
