// The processes of a job as they come and go: whose child each one was when it was first seen, for
// which rank it works, and how long one that had ended was not asked for by its parent. It only
// reads, again and again; who comes and goes between two readings is not known.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "harness/history/run.h"
#include "harness/os/proc.h"

namespace lockstep::history {
class JournalWriter;
}

namespace lockstep::launch {

class Lineage {
 public:
  using RankOf = std::function<std::optional<Rank>(const os::ProcessId&)>;

  /// `journal` may be null.
  explicit Lineage(history::JournalWriter* journal) : journal_(journal) {}

  /// A reading of all descendants, zombies included; `rank_of` knows those that are ranks. Before
  /// zombies are reaped.
  void see(const std::vector<os::ProcessStat>& family, const RankOf& rank_of);
  /// The job is over: zombies that are still there were never asked for.
  void finish();

  /// What there is to say of one that is left.
  [[nodiscard]] Leftover describe(const os::ProcessStat& process) const;
  /// A process with this pid belonged to the job.
  [[nodiscard]] bool had(std::int32_t pid) const { return parents_.contains(pid); }
  [[nodiscard]] std::optional<Rank> rank_of(std::int32_t pid) const;
  /// One of those above this process is a rank.
  [[nodiscard]] bool descends_from_a_rank(std::int32_t pid) const;

 private:
  struct Relative {
    std::string name{};
    std::optional<Rank> rank{};
    std::int32_t parent{};
    std::string parent_name{};
    std::uint64_t zombie_since_ns{};  // While its parent lived; 0: it lives.
    std::uint64_t zombie_until_ns{};
    std::optional<std::int32_t> parent_waits_for{};
    bool is_rank{};  // Itself; else it works for one.
    bool seen{};     // In the reading of now.
  };

  Relative& relative(const os::ProcessStat& process);
  /// True if its rank is found now: its own, or that of its parent.
  bool finds_rank(const os::ProcessId& id, const RankOf& rank_of);
  [[nodiscard]] std::vector<Ancestor> lineage_of(const os::ProcessId& id) const;
  void see_zombie(Relative& relative, const os::ProcessStat& process);
  void close(const os::ProcessId& id, const Relative& relative, bool taken);

  history::JournalWriter* journal_;
  std::map<os::ProcessId, Relative> relatives_{};  // That exist.
  // Of every one that there was, by pid.
  std::map<std::int32_t, Rank> ranks_{};
  std::map<std::int32_t, std::int32_t> parents_{};  // 0: not known.
  std::map<std::int32_t, std::uint64_t> start_ticks_{};
};

}  // namespace lockstep::launch
