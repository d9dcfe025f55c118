// Calls that stand still according to dumps, and who waits in them for whom.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "harness/model/group_view.h"

namespace lockstep::checkers {

/// One call that ranks wait in.
struct RecordedWait {
  const GroupView* group{};
  const Collective* call{};  ///< As the first waiter issued it.
  std::uint64_t seq{};
  RankSet waiting{};  ///< For them it is the first of its group that is not done.
  RankSet running{};  ///< Of those: it is what their devices are in, not one that is in the queue.
  RankSet entered{};  ///< They have issued it.
  RankSet absent{};   ///< They have not.
  RankSet unseen{};   ///< No dump of theirs is there.
  RankSet behind{};   ///< All have entered, and the devices of these have not come to it.
  bool supposed{};    ///< So by the order of their calls: the recorder does not tell.
  bool differs{};     ///< Members issued another call at its place.
  bool given_up{};    ///< Its limit has passed.
  bool to_one{};      ///< A message.

  /// Those for whom the others wait.
  [[nodiscard]] const RankSet& owing() const { return absent.empty() ? behind : absent; }
};

class RecordedGraph {
 public:
  RecordedGraph(const Run& run, const std::vector<GroupView>& groups);

  [[nodiscard]] const std::vector<RecordedWait>& waits() const { return waits_; }
  /// It has a call that is not done.
  [[nodiscard]] bool waits(Rank rank) const { return open_.contains(rank.value); }
  /// Ranks that others wait for, and that wait in nothing themselves; or else whose devices stand
  /// still, while they wait for nobody.
  [[nodiscard]] RankSet roots() const;
  /// Ranks that wait for each other, in circles, and for nobody else.
  [[nodiscard]] RankSet circle() const;
  /// How long the longest wait was when its dump was written; none where that is not known.
  [[nodiscard]] std::optional<std::uint64_t> longest_ns() const;
  /// The shortest time for which nothing had happened on a rank that waits. The clocks of hosts and
  /// of the file system they write to may be seconds apart: who waits long by one of them may not.
  [[nodiscard]] std::uint64_t quiet_ns() const { return quiet_ns_; }

 private:
  void add_collectives(const GroupView& group);
  void add_messages(const GroupView& group, const std::set<std::int32_t>& dumped);
  void add_devices(RecordedWait& wait) const;
  void note_wait(const Member& member, const Collective& call, RecordedWait& wait);
  void find_first(const Run& run);
  void note_quiet(const Run& run);
  /// The device is in it: the recorder says so, or, where it never does, it is first in the queue.
  [[nodiscard]] bool runs(const Member& member, const Collective& call) const;
  [[nodiscard]] std::map<std::int32_t, RankSet> owed() const;

  std::vector<RecordedWait> waits_{};
  std::set<std::int32_t> open_{}, begun_{};  ///< Ranks with such calls.
  std::map<std::int32_t, std::uint64_t>
      first_{};  ///< Of a rank: the record of its first open call.
  std::optional<std::uint64_t> longest_ns_{};
  std::uint64_t quiet_ns_{~std::uint64_t{0}};
  bool untimed_{};
};

}  // namespace lockstep::checkers
