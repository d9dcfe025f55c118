// Waits for a message whose limit passed: Gloo then closes all connections of the group, and
// whatever its ranks do there afterwards fails.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "harness/history/run.h"
#include "harness/model/failure.h"
#include "harness/model/group_view.h"
#include "harness/verdict/verdict.h"

namespace lockstep::checkers {

struct ExpiredWait {
  Rank rank{};
  const GroupView* group{};
  const Collective* call{};  ///< The message that it waited for; null where that is not known.
  std::uint64_t at_ns{};     ///< When its limit passed.
  /// From the last thing that its thread had done until then: the limit is no longer than that.
  std::uint64_t limit_ns{};
  bool of_its_own{};  ///< Shorter than the limit of the group: the caller gave it.
  std::optional<SiteRef> site{};
  std::optional<SiteRef> came_at{};        ///< The peer's call, where it came to that later,
  std::optional<std::uint64_t> came_ns{};  ///< and when.
};

/// The first one, before `before_ns`, of a rank that was seen in it and went on, while whoever was
/// to send (or receive) lived and had not come to that. None where that was not seen.
std::optional<ExpiredWait> first_expired_wait(const Run& run, const std::vector<GroupView>& groups,
                                              std::uint64_t before_ns);

/// LS101, where all that failed only noticed that connections were closed, and such a wait, which
/// the program got over, closed them before: that, rather than who noticed it first.
std::optional<Finding> closed_by_a_wait(const Run& run, const std::vector<GroupView>& groups,
                                        const std::vector<Failure>& failures);

}  // namespace lockstep::checkers
