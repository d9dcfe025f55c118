// Where calls of one thread stand with respect to each other and to the loops of their sources.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "harness/model/group_view.h"

namespace lockstep {

/// A loop of a source, in the function that it belongs to.
using Loop = std::tuple<std::string, std::string, std::int32_t>;

const std::vector<Frame>& frames_of(const Member& member, const Collective& call);

bool same_function(const Frame& x, const Frame& y);

Loop loop_of(const Frame& frame, const SourceLoop& loop);

bool stands_in(const std::vector<Frame>& frames, const std::set<Loop>& loops);

/// Where a later call stands with respect to the loops around an earlier one of the same thread.
struct Whereabouts {
  std::set<Loop> left{};  ///< Around the earlier one only.
  /// Around both, outermost first, each with the later one's frame: the others may have come round
  /// again in it.
  std::vector<std::pair<const Frame*, const SourceLoop*>> around_both{};
  bool is_behind{};  ///< In the source, where the calls' ways part: on a later line.
  bool is_before{};  ///< On an earlier one, or further left in it.
};

/// Nothing where their ways do not part in one function, or are not known to the end.
std::optional<Whereabouts> compare(const std::vector<Frame>& earlier,
                                   const std::vector<Frame>& later);

/// What a later call is around again, as `compare` says, if its thread has come round in a loop
/// since the earlier one: it stands before that, or where that stood. Empty: that does not show.
std::vector<std::pair<const Frame*, const SourceLoop*>> came_round(
    const std::vector<Frame>& earlier, const std::vector<Frame>& later);

/// What a loop's variable held while a rank was seen inside a call; nothing if that was not seen.
std::optional<std::int64_t> round_at(const Run& run, const Member& member, const Collective& call,
                                     const Frame& frame, const SourceLoop& loop);

}  // namespace lockstep
