// Who says that it is a rank, and which of them belong together. Used by worlds.cc only.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "harness/history/run.h"

namespace lockstep {

/// A process that says that it is this rank: by a process group that it is in, or by its
/// environment.
struct Claim {
  Rank rank{};
  std::int32_t pid{};
  const Process* process{};  ///< Its history; null if it has none.
  std::int32_t parent{};
  std::int32_t world_size{};
  std::string meets_at{};
  std::int32_t attempt{};
  std::optional<std::int32_t> task{};
  std::int32_t tasks{};
  bool in_group{};
  std::uint64_t from_ns{};   ///< When it came into its group; of one without, when it was found.
  std::uint64_t until_ns{};  ///< When it ended; UINT64_MAX: it may live.
  [[nodiscard]] bool is_alone() const { return world_size < 2; }
  [[nodiscard]] bool overlaps(const Claim& other) const {
    return from_ns <= other.until_ns && other.from_ns <= until_ns;
  }
};

/// Claims that belong together.
struct Party {
  std::vector<const Claim*> claims{};
  std::int32_t size{};  ///< Of its world.
  /// Started its ranks, or their helpers: told to be a rank that one of the others is.
  std::vector<std::int32_t> wrappers{};

  [[nodiscard]] const Claim* claim_of(Rank rank) const;
  [[nodiscard]] bool has(std::int32_t pid) const;
  [[nodiscard]] bool has_group() const;
  [[nodiscard]] std::uint64_t from_ns() const;
  [[nodiscard]] std::uint64_t until_ns() const;
};

std::vector<Claim> claims_of(const Run& run);

/// In order of time. `claims` must outlive it.
std::vector<Party> parties_of(const std::vector<Claim>& claims);

}  // namespace lockstep
