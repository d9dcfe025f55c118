// Sends held against their receives.
#pragma once

#include <cstdint>
#include <optional>

#include "harness/model/group_view.h"

namespace lockstep::checkers {

/// LS210 for the first send and receive of a group that have the same number on (source,
/// destination, tag) and cannot be one message. A send without a receive is no finding. Adds the
/// pairs looked at to `compared`.
std::optional<Finding> unmatched_pair(const GroupView& group, std::uint64_t& compared);

/// LS210 for a receive that failed, or whose rank was told in it that another is gone, of a message
/// that its sender, which came to its end by itself, never sent.
std::optional<Finding> never_sent(const Run& run, const GroupView& group);

}  // namespace lockstep::checkers
