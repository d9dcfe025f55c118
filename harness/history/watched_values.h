// What the watch saw of the values in one rank, as plain values; see watch_format.h for the words.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "harness/history/vocabulary.h"
#include "harness/history/watch_format.h"

namespace lockstep {

/// A tensor of a replica.
struct WatchedTensor {
  std::string name{};
  std::uint32_t group{};    ///< Index into Process::groups.
  std::uint32_t replica{};  ///< Among those that were made with this group.
  std::uint32_t site{};     ///< Where the replica was made.
  bool reduced{}, ignored{}, buffer{}, loose{}, at_start{}, late{};
  history::DType dtype{};
  std::uint64_t numel{};
};

/// The values with which an optimizer was about to step.
struct WatchedPoint {
  std::uint64_t at_ns{};
  std::uint64_t position{};  ///< Collectives issued on the group before.
  std::uint64_t step{};      ///< Of this optimizer, from 1.
  std::uint32_t ordinal{};   ///< Among its steps at this position.
  std::uint32_t group{};
  std::uint32_t optimizer{};
  std::vector<history::WatchEntry> entries{};
};

/// A rank handed something to a reduction that was not finite.
struct WatchedNonFinite {
  std::uint64_t at_ns{}, position{}, numel{};
  std::uint32_t group{}, site{};
};

/// What a rank handed to one of the first reductions of a group, or before a watched step.
struct WatchedHandedIn {
  std::uint64_t at_ns{}, position{}, numel{};
  history::WatchValue value{};
  std::uint32_t group{}, site{}, version{};
};

/// The words are those of history::WatchMisuseRecord.
struct WatchedMisuse {
  std::uint64_t at_ns{}, position{}, numel{};
  history::WatchMisuse what{};
  std::uint32_t group{}, site{}, later{};
};

/// A loop over a DataLoader; the words are those of history::WatchEpochRecord.
struct WatchedEpoch {
  std::uint64_t at_ns{}, received{}, batches{}, order{}, share{}, subset{};
  std::array<std::uint64_t, history::kWatchBatches> digests{};
  std::uint32_t replicas{}, loader{}, epoch{}, flags{}, taken{}, share_of{}, seed{};
  std::string sampler{};  ///< Its class.
  std::string place{};    ///< "file:line" of the loop; empty where it is not the program's.
  [[nodiscard]] bool has(std::uint32_t all) const { return (flags & all) == all; }
};

struct WatchedValues {
  bool on{};  ///< The rank was watched at all.
  std::vector<WatchedTensor> tensors{};
  std::vector<WatchedPoint> points{};
  std::vector<WatchedNonFinite> non_finite{};
  std::vector<WatchedHandedIn> handed_in{};
  std::vector<WatchedMisuse> misuses{};
  std::vector<WatchedEpoch> epochs{};
  std::vector<std::string> unseen{};  ///< What was not watched, and why.
  std::uint64_t steps{}, watched{}, dropped{};
  std::uint64_t first_ns{}, steady_ns{}, steady_since_ns{}, steady_until_ns{}, interval{};
  std::uint64_t last_step_ns{};  ///< When the last step was made, watched or not.
};

}  // namespace lockstep
