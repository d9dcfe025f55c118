// What each rank's process is doing at one instant: which threads are blocked, what they wait for,
// and whether anything in the process could still move. The facts that a deadlock is proven from.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "checkers/groups.h"

namespace lockstep::checkers {

/// What one blocked thread waits for: any one of `calls`, or the next request of the conversation,
/// or that other ranks make the group that it makes (torch.distributed.new_group).
struct Wait {
  std::int32_t thread{};
  std::vector<const Collective*> calls{};
  bool next_request{};
  bool new_group{};
};

struct ProcessState {
  Rank rank{};
  const Process* process{};
  bool closed{};  ///< Every issuer is blocked in a known wait and nothing else in it can issue.
  std::string not_closed{};  ///< Why not.
  std::vector<Wait> waits{};
  std::vector<const Collective*> open{};  ///< Not known to be done, in record order.
  const StackSample* main_stack{};        ///< Of the main thread, since the last thing it did.
  [[nodiscard]] bool makes_a_group() const;
};

/// Not known to be done before the cutoff: it did not complete, and its thread did not go on from a
/// synchronous call.
std::vector<const Collective*> open_calls(const Process& process, std::uint64_t cutoff_ns);

ProcessState state_of(const Run& run, const Process& process, std::uint64_t cutoff_ns);

/// Where a rank is, or else where it was when it last issued something.
std::optional<SiteRef> whereabouts(const ProcessState& state, std::uint64_t cutoff_ns,
                                   const std::string& role);

/// A thread of a library that runs Python and never issues a collective.
bool is_known_helper(const StackSample& stack);

/// For how long the thread of this sample has been seen so whenever it was looked at; 0 if it is
/// not.
std::uint64_t lasted_ns(const Run& run, const StackSample& last,
                        const std::function<bool(const StackSample&)>& is_so);

/// In the code of torch.utils.data's loader, which fetches a batch.
bool in_data_loader(const std::vector<Frame>& frames);

/// In a c10d wait without a limit of its own (a store wait is none).
bool in_collective_wait(const StackSample& stack);

}  // namespace lockstep::checkers
