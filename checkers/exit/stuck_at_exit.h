// A process whose program is over and that stays (LS103): what keeps it. From the stacks of the
// last look; it becomes a finding only when the run was ended by somebody's patience.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "harness/model/job.h"

namespace lockstep::checkers {

class StuckAtExit final : public Checker {
 public:
  [[nodiscard]] std::string_view name() const override { return "exiting"; }
  [[nodiscard]] Verdict check(const Job& job) const override;
};

/// One line for each process that is on its way out as of its last look: "rank 1 is leaving: ...".
std::vector<std::string> on_their_way_out(const Run& run);

/// What keeps one of them.
struct WayOut {
  std::int32_t pid{};
  std::string what{};             ///< "waits for a thread that is not a daemon".
  std::string over{};             ///< What has come to its end: "its program".
  std::optional<SiteRef> site{};  ///< Of the thread that keeps it, where one does.
  std::vector<Evidence> evidence{};
  std::string help{};
};
std::vector<WayOut> ways_out(const Run& run);

}  // namespace lockstep::checkers
