// The process groups that the tap has met. A group is recognised by its address, its name and the
// counter of its backend: that counter also tells whether the tap has seen everything from the
// group's creation on, and whether calls went past it (straight to the backend).
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

#include "harness/history/writer.h"

namespace c10d {
class ProcessGroup;
}

#pragma GCC visibility push(hidden)  // As the writer: nothing is exported from the user's process.

namespace lockstep::tap {

class Groups {
 public:
  explicit Groups(history::Writer& writer) : writer_(writer) {}

  struct Known {
    std::atomic<const c10d::ProcessGroup*> group{};
    std::atomic<std::uint32_t> handle{};
    std::atomic<std::uint64_t>
        expected{};  ///< The backend's counter at the next call, if none goes past.
    std::atomic<std::uint32_t> inside{};  ///< Threads that are in a call.
    std::atomic<bool> counts{};           ///< The backend has a counter.
    std::string name{};
  };

  /// A call on `group` is about to be passed on. Null if there are too many groups. To be matched
  /// by leave().
  Known* enter(c10d::ProcessGroup& group);
  /// It is back, and has moved the counter by an amount of its own: a message of NCCL's by none, a
  /// monitored barrier of Gloo's, which sends and receives, by several.
  static void leave(Known& known, c10d::ProcessGroup& group);
  /// A new group, perhaps at the address of one that is gone.
  void created(c10d::ProcessGroup& group, std::uint32_t site);

  void set_world(std::int32_t world_size) {
    world_size_.store(world_size, std::memory_order_relaxed);
  }

 private:
  static constexpr std::size_t kSlots = 1024;

  Known* find(const c10d::ProcessGroup* group);
  Known* meet(c10d::ProcessGroup& group);
  Known* place_for(c10d::ProcessGroup& group);
  void define(c10d::ProcessGroup& group, Known& known, std::uint64_t sequence,
              std::uint32_t site = 0);

  history::Writer& writer_;
  std::atomic<std::int32_t> world_size_{};
  std::mutex mutex_{};
  std::unique_ptr<Known[]> table_{std::make_unique<Known[]>(kSlots)};
  std::size_t used_{};
};

}  // namespace lockstep::tap

#pragma GCC visibility pop
