// What one dump comes to: for each group where its rank stands and its last calls, and of all calls
// before only digests. So memory grows with ranks and groups, not with entries.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "harness/history/dump_value.h"
#include "harness/history/run.h"

namespace lockstep::history {

/// A group and a backend: each has numbers of its own.
struct RingGroup {
  std::string name{}, description{}, backend{};
  std::int64_t id{-1};
  std::uint64_t first_seq{}, end_seq{};       ///< Of the collectives; equal: none is in the ring.
  std::optional<std::uint64_t> first_open{};  ///< The first that is not done, and none after it is.
  Collective first_open_call{};
  std::uint64_t done_before{};  ///< One behind the last collective that has completed.
  bool tells_starts{};          ///< When the device begins.
  /// Number of a collective, and a digest of what must agree in it.
  std::vector<std::pair<std::uint64_t, std::uint64_t>> digests{};
  std::vector<Collective> asked{};  ///< While reading; then in front of `kept`.
  std::deque<Collective> kept{};    ///< The last ones, and those asked for.
  /// That have not completed, and the last that has of each peer and direction.
  std::vector<Collective> point_to_point{};

  [[nodiscard]] std::string key() const { return name + '/' + backend; }
};

/// By key of a group, collectives to keep besides the last ones: from, and one behind.
using Wanted = std::map<std::string, std::pair<std::uint64_t, std::uint64_t>>;

class DumpRing {
 public:
  static constexpr std::size_t kLast = 24;

  explicit DumpRing(Wanted wanted = {}) : wanted_(std::move(wanted)) {}

  void add(const DumpEntry& entry, const DumpWords& words);
  /// All entries were added.
  void finish(const DumpHead& head);

  [[nodiscard]] std::vector<RingGroup>& groups() { return groups_; }
  [[nodiscard]] std::vector<CallSite>& sites() { return sites_; }
  [[nodiscard]] std::uint64_t entries() const { return entries_; }

 private:
  struct Name {
    std::string_view backend{}, op_name{};
    Op op{};
    std::int32_t peer{-1};
    bool coalesced{};
  };
  const Name& name_of_call(std::string_view name);
  RingGroup& group_of(const DumpEntry& entry, const Name& name);
  void add_collective(RingGroup& group, const DumpEntry& entry, const Name& name,
                      const DumpWords& words);
  void add_point_to_point(RingGroup& group, const DumpEntry& entry, const Name& name,
                          const DumpWords& words);
  Collective call_of(const RingGroup& group, const DumpEntry& entry, const Name& name);
  std::uint32_t site_of(DumpValue frames, const DumpWords& words);

  Wanted wanted_;
  std::vector<RingGroup> groups_{};
  std::vector<CallSite> sites_{1};
  std::map<std::vector<std::pair<const char*, std::int64_t>>, std::uint32_t> site_ids_{};
  std::unordered_map<std::uint64_t, std::uint32_t> shared_sites_{};
  std::unordered_map<const char*, Name> names_{};  ///< Texts of a dump are there once each.
  std::uint64_t entries_{};
};

}  // namespace lockstep::history
