// The process groups that the tap has met. A group is recognised by its address, by its backend and
// by that one's counter: the counter also tells whether the tap has seen everything from the
// group's creation on, and whether calls went past it.
//
// A backend may be used without a group around it. It is then a group of its own, and where one is
// put around it later, that one.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

#include "harness/history/writer.h"

namespace c10d {
class Backend;
class ProcessGroup;
class Store;
}  // namespace c10d

#pragma GCC visibility push(hidden)  // As the writer: nothing is exported from the user's process.

namespace lockstep::tap {

class Groups {
 public:
  explicit Groups(history::Writer& writer) : writer_(writer) {}

  struct Known {
    std::atomic<const c10d::Backend*> backend{};  ///< Its default one; null if it has none.
    std::atomic<std::uint32_t> handle{};
    std::atomic<std::uint64_t>
        expected{};  ///< The backend's counter at the next call, if none goes past.
    std::atomic<std::uint32_t> inside{};  ///< Threads that are in a call.
    std::atomic<bool> counts{};           ///< The backend has a counter.
    std::atomic<bool> alone{};            ///< A backend without a group around it, so far,
    std::atomic<bool> used{};             ///< that was called,
    std::atomic<bool> part{};             ///< or is part of another one.
    bool whole{};                         ///< Nothing had been issued on it when it was met.
    std::int32_t size{};
    std::string name{};
    std::uint64_t store{};  ///< See history::kNamedByStore.
  };

  /// A call on `group` is about to be passed on. Null if there are too many groups. To be matched
  /// by leave().
  Known* enter(c10d::ProcessGroup& group);
  /// The same for a call on a backend itself.
  Known* enter(c10d::Backend& backend);
  /// It is back, and has moved the counter by an amount of its own: a message of NCCL's by none, a
  /// monitored barrier of Gloo's, which sends and receives, by several.
  static void leave(Known& known);
  /// A call on this backend is part of a call on another one.
  void used_inside(const c10d::Backend& backend);

  /// A new group, perhaps at the address of one that is gone.
  void created(c10d::ProcessGroup& group, std::uint32_t site);
  /// A new backend, whose members met in `store`. `seen`: the tap sees calls on it.
  void created(c10d::Backend& backend, c10d::Store& store, bool seen, std::uint32_t site);

  void set_world(std::int32_t world_size) {
    world_size_.store(world_size, std::memory_order_relaxed);
  }

 private:
  static constexpr std::size_t kSlots = 4096, kKnownMax = 1024;
  struct Entry {
    std::atomic<const void*> key{};
    std::atomic<Known*> known{};
  };

  Entry* find(const void* key);
  Known* known_at(const void* key);
  Known* candidate(const c10d::Backend* backend);
  static bool was_replaced(const Known& known, const c10d::Backend& backend);
  bool come_in(Known& known, c10d::Backend* backend);
  Known* meet(c10d::ProcessGroup& group, c10d::Backend* backend);
  Known* define(c10d::ProcessGroup& group, c10d::Backend* backend, std::uint32_t site);
  Known* define(c10d::Backend& backend, c10d::Store* store, bool seen, std::uint32_t site);
  void take_name(c10d::ProcessGroup& group, Known& known);
  void take_rank(std::int32_t rank, std::int32_t size);
  void take_other_backends(c10d::ProcessGroup& group, const Known& known);
  void remember(const void* key, Known* known);
  Known* fresh();

  history::Writer& writer_;
  std::atomic<std::int32_t> world_size_{};
  std::mutex mutex_{};
  std::unique_ptr<Entry[]> table_{std::make_unique<Entry[]>(kSlots)};
  std::size_t used_{};
  std::unique_ptr<Known[]> all_{std::make_unique<Known[]>(kKnownMax)};
  std::size_t all_used_{};
};

}  // namespace lockstep::tap

#pragma GCC visibility pop
