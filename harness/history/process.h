// A recorded process, and the groups it was in: what its tap wrote.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "harness/base/rank_set.h"
#include "harness/history/begun.h"
#include "harness/history/collective.h"

namespace lockstep {

struct WatchedValues;  // history/watched_values.h

/// A process group as one process sees it.
struct Group {
  std::string name{};
  std::uint32_t generation{};  ///< Counts re-creations under the same name.
  std::int32_t size{};
  std::int32_t my_rank{};     ///< Rank of this process in the group.
  std::vector<Rank> ranks{};  ///< Global ranks by group rank; empty = not known.
  std::uint32_t site{};
  bool seen_from_creation{};  ///< Every collective since the group's creation was seen.
  /// It has no name of its own (made without init_process_group): `name` is the prefix of its keys
  /// in the store where its members meet. Of equal `store` they can; 0: not known.
  bool named_by_store{};
  std::uint64_t store{};
  bool inside{};  ///< Called inside calls of other groups, which tell all of it.
  std::optional<std::int64_t> timeout_ms{};  ///< Its own limit for a wait; none = not known.
  std::uint64_t issued{}, returned{},
      completed{};  ///< Collectives so far, dropped ones included (p2p apart).
  std::vector<std::uint64_t>
      last_signatures{};  ///< Of the last collectives, oldest first, at most 64.
  /// Digest chain: after each 1,024 collectives a hash of all signatures since the creation, so the
  /// first block in which two members differ is the first whose digest differs. `site_digests`: the
  /// same over call sites.
  std::vector<std::uint64_t> digests{}, site_digests{};
  std::uint64_t p2p_issued{}, p2p_returned{},
      p2p_completed{};  ///< Point-to-point operations so far.
};

/// The GPU of the first tensor on one that a process handed to a collective.
struct Device {
  std::int32_t index{};    ///< As the process counts them.
  std::int32_t visible{};  ///< How many it sees.
  std::string uuid{};      ///< 32 hex digits; of a part of a GPU (MIG) that of the part.
};

/// One recorded process: what its tap wrote.
struct Process {
  std::string file{};  ///< Name of its history file.
  std::string host{};
  std::int32_t pid{};
  std::uint64_t start_ticks{};  ///< Field 22 of /proc/PID/stat: with pid and boot id, an identity.
  std::optional<Rank> rank{};
  std::optional<Rank> beside{};  ///< It says that it is this rank, and another process is.
  std::int32_t world_size{};
  std::string torch_version{};
  std::uint64_t opened_ns{};
  std::vector<Group> groups{};
  std::vector<Creation> creations{};  ///< In the order in which they were begun.
  std::vector<SetAside> set_aside{};
  std::vector<Begun> begun{};
  std::vector<CallSite> sites{};          ///< [0] is empty: "not recorded".
  std::vector<Collective> collectives{};  ///< In record order.
  std::uint64_t dropped{};    ///< Records known to be lost (ring overwritten, no space).
  bool closed{};              ///< The closing record was found and nothing is missing before it.
  std::uint64_t closed_ns{};  ///< When it was written, on its way out; 0: not known.
  bool damaged{};             ///< Something in the file did not make sense and was left out.
  std::string boot_id{};      ///< Of the host; monotonic times compare only where it is equal.
  std::uint64_t pid_namespace{};
  std::int32_t parent_pid{};
  std::uint64_t wall_ns{};       ///< Wall clock at opened_ns.
  std::uint64_t capabilities{};  ///< history::Capability: what the tap could see.
  std::optional<Device> device{};
  std::shared_ptr<WatchedValues> watched{};  ///< Null: its values were not watched.

  /// "Complete for this group since its creation": absence of a record is absence of a call. Ring
  /// overflow does not end it (counts and digests go on); a gap, damage or a group met late does.
  [[nodiscard]] bool is_complete(std::uint32_t group) const {
    return !damaged && group < groups.size() && groups[group].seen_from_creation;
  }
};

}  // namespace lockstep
