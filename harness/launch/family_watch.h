// Looks at everything that a job started, again and again: who is there, what of it ended and was
// not waited for, which shared memory it made, how many descriptors its ranks hold. What is worth
// telling goes into the journal.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "harness/launch/lineage.h"
#include "harness/launch/named_objects_watch.h"
#include "harness/launch/prober.h"

namespace lockstep::launch {

class FamilyWatch {
 public:
  /// `journal` may be null.
  explicit FamilyWatch(history::JournalWriter* journal) : journal_(journal), lineage_(journal) {}

  /// All descendants of this process, zombies included. Orphans that it inherited and that have
  /// ended are reaped; `known` (ended ones included) are not: somebody holds them.
  const std::vector<os::ProcessStat>& look(const std::vector<Watched>& known);
  /// As the last look read them.
  [[nodiscard]] const std::vector<os::ProcessStat>& last() const { return family_; }
  /// Somebody of those runs, or has read something since the last call: a program that imports
  /// shows nothing else for a long time.
  bool is_at_work();

  /// The job is over.
  void finish() { lineage_.finish(); }

  /// What the job left behind under a name: shared memory that is of no use to anybody is removed,
  /// and on request all of it written down.
  void settle_objects(bool write_down);

  [[nodiscard]] const Lineage& lineage() const { return lineage_; }

 private:
  struct Work {
    std::uint64_t bytes_read{};
    std::uint64_t wanted_ns{}, at_ns{};
    int running{};  // In so many looks, one after the other.
  };
  void read_family();
  void count_descriptors(const Watched& rank);

  history::JournalWriter* journal_;
  Lineage lineage_;
  std::vector<os::ProcessStat> family_{};  // As last read.
  std::optional<std::int32_t> last_pid_{};
  int looks_since_a_start_{};
  std::uint64_t all_read_ns_{};
  NamedObjectsWatch objects_{};
  std::map<os::ProcessId, Descriptors> descriptors_{};  // As last told.
  std::map<os::ProcessId, Work> work_{};
};

}  // namespace lockstep::launch
