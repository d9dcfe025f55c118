// What each rank's process is doing at one instant: which threads are blocked, what they wait for,
// and whether anything in the process could still move. The facts that a deadlock is proven from.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "harness/model/activity.h"
#include "harness/model/group_view.h"

namespace lockstep {

struct ProcessState {
  Rank rank{};
  const Process* process{};
  bool quiescent{};  ///< Every issuer is blocked in a known wait and nothing else in it can issue.
  std::string not_quiescent{};    ///< Why not.
  std::vector<Activity> waits{};  ///< Of its issuers: in a call, for a request, a group, a thread.
  std::vector<const Collective*> open{};  ///< Not known to be done, in record order.
  const StackSample* main_stack{};        ///< Of the main thread, since the last thing it did.
  std::uint64_t last_event_ns{};          ///< The last thing that its history tells.
  /// From here to its last sample all of its threads slept, but for next to nothing; if they did.
  std::optional<std::uint64_t> idle_from_ns{};
  /// One of its issuers does.
  [[nodiscard]] bool one_is(Doing doing) const;
};

/// Not known to be done before the cutoff: it did not complete, and its thread did not go on from a
/// synchronous call.
std::vector<const Collective*> open_calls(const Process& process, std::uint64_t cutoff_ns);

ProcessState state_of(const Run& run, const Process& process, std::uint64_t cutoff_ns);

/// Where a rank is, or else where it was when it last issued something.
std::optional<SiteRef> whereabouts(const ProcessState& state, std::uint64_t cutoff_ns,
                                   const std::string& role);

}  // namespace lockstep
