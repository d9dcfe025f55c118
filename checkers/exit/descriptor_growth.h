// Open descriptors that grow towards the limit (LS111, a warning): what a "Too many open files" to
// come, or the one that came, is made of.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "harness/model/job.h"

namespace lockstep::checkers {

class DescriptorGrowth final : public Checker {
 public:
  [[nodiscard]] std::string_view name() const override { return "descriptors"; }
  [[nodiscard]] Verdict check(const Job& job) const override;
};

inline constexpr const char* kHelpWithDescriptors =
    "find what keeps them open (tensors from loader workers that are kept, files, sockets), or "
    "raise "
    "`ulimit -n`; the sharing strategy file_system only moves them to /dev/shm, where "
    "torch_shm_manager must clean up";

/// What a rank had open, at first and at last: a line each. Empty where it was not seen.
struct OpenDescriptors {
  std::vector<Evidence> lines{};
  /// Where the files were opened of which it had more at last; none if more than one line did, or
  /// it is not known.
  std::optional<SiteRef> opened{};
};
OpenDescriptors descriptors_of(const Run& run, Rank rank);

}  // namespace lockstep::checkers
