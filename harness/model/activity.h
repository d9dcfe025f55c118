// What a thread does, or waits for: one typed answer, and its words.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "harness/history/run.h"

namespace lockstep {

enum class Doing : std::uint8_t {
  kUnknown,      ///< It ran, waited for other ranks, or it does not show.
  kInCall,       ///< Waits for any one of `calls`.
  kNextRequest,  ///< Waits for the next request of the conversation.
  kInNewGroup,   ///< Waits for other ranks to make the group that it makes.
  kOwnThread,    ///< Waits for other threads of its process, none of which can go on.
  kStopped,
  kTraced,
  kPoolTask,  ///< A worker of a pool of processes, without a task.
  kLoaderWorker,
  kChild,
  kFileLock,
  kPipe,
  kAwaited,  ///< A pipe, a socket or a file: which does not show.
  kTerminal,
  kDevice,  ///< A disk, say.
  kTimer,
};

struct Activity {
  Doing doing{};
  std::int32_t thread{};
  std::vector<const Collective*> calls{};
  RankSet held_by{};  ///< Who has the file lock, or the other end, that it waits for.
};

/// "waits for a locked file, which rank 0 has"; empty where it is unknown.
std::string in_words(const Activity& activity);

/// What keeps the main thread of a process from its next collective, if one thing does so for a
/// while. `stack`: of that thread, null if it was not seen.
Activity held_up(const Run& run, std::int32_t pid, const StackSample* stack,
                 std::uint64_t cutoff_ns);

/// It waits for other ranks, in the store, in the transport or for its GPU: nothing of its own.
bool waits_for_others(const StackSample* stack);

/// The last look at this process before the cutoff; null if there was none.
const StateSample* last_state(const Run& run, std::int32_t pid, std::uint64_t cutoff_ns);

/// Null where it was not seen in that look.
const ThreadState* thread_in(const StateSample& sample, std::int32_t tid);

/// "child pid 4711 (pt_data_worker) sleeps in hrtimer_nanosleep".
std::string in_words(const ChildState& child);

/// Two looks at least this far apart prove stillness.
inline constexpr std::uint64_t kStillNs = 200'000'000;

}  // namespace lockstep
