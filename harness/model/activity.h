// What each rank's process is doing at one instant: which threads are blocked, what they wait for,
// and whether anything in the process could still move. The facts that a deadlock is proven from.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "harness/model/group_view.h"

namespace lockstep {

/// What one blocked thread waits for: any one of `calls`, or the next request of the conversation,
/// or that other ranks make the group that it makes (torch.distributed.new_group), or other threads
/// of its process, none of which can go on.
struct Wait {
  std::int32_t thread{};
  std::vector<const Collective*> calls{};
  bool next_request{};
  bool new_group{};
  bool own_threads{};
};

struct ProcessState {
  Rank rank{};
  const Process* process{};
  bool closed{};  ///< Every issuer is blocked in a known wait and nothing else in it can issue.
  std::string not_closed{};  ///< Why not.
  std::vector<Wait> waits{};
  std::vector<const Collective*> open{};  ///< Not known to be done, in record order.
  const StackSample* main_stack{};        ///< Of the main thread, since the last thing it did.
  std::uint64_t last_event_ns{};          ///< The last thing that its history tells.
  /// From here to its last sample all of its threads slept, but for next to nothing; if they did.
  std::optional<std::uint64_t> idle_from_ns{};
  [[nodiscard]] bool makes_a_group() const;
  [[nodiscard]] bool waits_for_itself() const;
};

/// Not known to be done before the cutoff: it did not complete, and its thread did not go on from a
/// synchronous call.
std::vector<const Collective*> open_calls(const Process& process, std::uint64_t cutoff_ns);

ProcessState state_of(const Run& run, const Process& process, std::uint64_t cutoff_ns);

/// Where a rank is, or else where it was when it last issued something.
std::optional<SiteRef> whereabouts(const ProcessState& state, std::uint64_t cutoff_ns,
                                   const std::string& role);

}  // namespace lockstep
