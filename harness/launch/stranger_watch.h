// With whom ranks are connected: where two jobs use one MASTER_PORT, it is with ranks of the other
// one, and only the sockets show it.
#pragma once

#include <cstdint>
#include <functional>
#include <set>
#include <utility>
#include <vector>

#include "harness/launch/prober.h"
#include "harness/os/proc.h"

namespace lockstep::launch {

class StrangerWatch {
 public:
  /// Everything of the job, read anew.
  using Members = std::function<std::vector<os::ProcessStat>()>;

  /// `journal` may be null.
  StrangerWatch(history::JournalWriter* journal, Members members)
      : journal_(journal), members_(std::move(members)) {}

  /// Writes down who is connected to one of these ranks and is none of the job's, once for each
  /// pair. `family`: what is known of the job, which may be a little old.
  void look(const std::vector<Watched>& ranks, const std::vector<os::ProcessStat>& family);
  /// The same of those that were not looked at since they came into a group. (Then their
  /// connections are there, and may not be for long.)
  void look_once(const std::vector<Watched>& ranks, const std::vector<os::ProcessStat>& family);

 private:
  history::JournalWriter* journal_;
  Members members_;
  std::set<std::pair<std::int32_t, std::int32_t>> told_{};  // Pid of the rank, and of the other.
  std::set<os::ProcessId> looked_at_{};
};

}  // namespace lockstep::launch
