#include "harness/model/children.h"

#include <fmt/format.h>

namespace lockstep {

const StateSample* last_state(const Run& run, std::int32_t pid, std::uint64_t cutoff_ns) {
  const StateSample* last = nullptr;
  for (const StateSample& state : run.states) {
    if (state.pid == pid && state.at_ns <= cutoff_ns &&
        (last == nullptr || state.at_ns >= last->at_ns))
      last = &state;
  }
  return last;
}

std::string in_words(const ChildState& child) {
  const std::string who = fmt::format("child pid {} ({})", child.pid, child.name);
  switch (child.state) {
    case 'Z':
      return who + " has ended";
    case 'T':
      return who + " is stopped";
    case 'D':
      return who + " waits for a disk or device";
    case 'S':
      return who + (child.wchan.empty() ? " sleeps" : fmt::format(" sleeps in {}", child.wchan));
    default:
      return who + " runs";
  }
}

}  // namespace lockstep
