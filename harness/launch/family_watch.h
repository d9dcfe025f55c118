// Looks at everything that a job started, again and again: who is there, what of it ended and was
// not waited for, which shared memory it made, how many descriptors its ranks hold. What is worth
// telling goes into the journal.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "harness/launch/lineage.h"
#include "harness/launch/prober.h"
#include "harness/launch/shared_memory_watch.h"

namespace lockstep::launch {

class FamilyWatch {
 public:
  /// `journal` may be null.
  explicit FamilyWatch(history::JournalWriter* journal) : journal_(journal), lineage_(journal) {}

  /// All descendants of this process, zombies included. Orphans that it inherited and that have
  /// ended are reaped; `known` (ended ones included) are not: somebody holds them.
  std::vector<os::ProcessStat> look(const std::vector<Watched>& known);
  /// The job is over.
  void finish() { lineage_.finish(); }

  /// Shared memory that the job left behind: written down, and what is of no use to anybody
  /// removed.
  void record_segments();
  void remove_private_segments() const { shared_memory_.remove_private(); }

  [[nodiscard]] const Lineage& lineage() const { return lineage_; }

 private:
  void count_descriptors(const Watched& rank);

  history::JournalWriter* journal_;
  Lineage lineage_;
  SharedMemoryWatch shared_memory_{};
  std::map<os::ProcessId, Descriptors> descriptors_{};  // As last told.
};

}  // namespace lockstep::launch
