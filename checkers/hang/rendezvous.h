// Did every rank come to init_process_group? LS107: some wait there for one that has not, when the
// limit that the user set ended the run, or somebody interrupted it after a long wait. It is no
// collective yet, so only their stacks show it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "harness/model/job.h"

namespace lockstep::checkers {

/// In init_process_group; where nobody is missing it takes milliseconds.
constexpr std::uint64_t kLongJoiningNs = 2'000'000'000;

/// Why the ranks of a running job will never meet, in one line: one failed before it was in a
/// group, nobody is there who could start it again, and all others wait for it in
/// init_process_group. None unless it is certain. `others_wait`: of the job's processes that are no
/// ranks none does anything before a rank does.
std::optional<std::string> cannot_all_join(const Run& run, bool others_wait);

/// In Python's init_process_group, or where C++ makes its store and its first group.
bool are_of_joining(const std::vector<Frame>& frames);

/// All ranks that had not ended well wait for others in another init_process_group than their
/// first, or failed in it for want of them, after this one's end. Empty if any of them may be whom
/// they wait for.
RankSet waiting_to_join_again(const Run& run, const ProcessEnd& gone);

/// The line of that.
std::optional<SiteRef> where_it_joins(const Run& run, Rank rank);

/// A rank that is in no group so far, as of the last look at it.
struct BeforeItsGroup {
  std::optional<std::uint64_t> joining_since_ns{};  ///< When it was first seen to wait there.
  std::optional<SiteRef> site{};
};
/// None if it is in one, has ended, or was never looked at.
std::optional<BeforeItsGroup> before_its_group(const Run& run, Rank rank, std::uint64_t cutoff_ns);

class Rendezvous : public Checker {
 public:
  [[nodiscard]] std::string_view name() const override { return "joining"; }
  [[nodiscard]] Verdict check(const Job& job) const override;
};

}  // namespace lockstep::checkers
