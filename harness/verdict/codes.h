// Every code that lockstep can report, as a value: its word, what it is of, and what it explains. A
// code is never reused: one that is retired keeps its row.
#pragma once

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

namespace lockstep {

enum class Code : std::uint8_t {
  kNone,
  kRankDied,
  kLeftEarly,
  kWillNotExit,
  kOrphan,
  kZombie,
  kLeftover,
  kNeverJoined,
  kHiddenFailure,
  kLauncherWaitsInOrder,
  kDevices,
  kDescriptors,
  kDifferentOp,
  kDifferentSize,
  kDifferentDtype,
  kDifferentReduction,
  kDifferentRoot,
  kSwapped,
  kExtraCall,
  kMissingCall,
  kGroupDiffers,
  kP2pUnmatched,
  kTouchedInFlight,
  kUndefinedResult,
  kTensorWithGaps,
  kAbsentRank,
  kWaitCycle,
  kStalledOutside,
  kSlow,
  kUnevenBatches,
  kLeftLoop,
  kEveryoneInside,
  kParameterDiffers,
  kBufferDiffers,
  kGradientNotSynchronised,
  kOptimizerStateDiffers,
  kRandomState,
  kInitialValue,
  kOutsideBuckets,
  kShardsOverlap,
  kSamplesMissed,
  kUnequalLengths,
  kNotReshuffled,
  kPaddingCounted,
  kWrongLength,
  kListChanged,
  kStepMixesBuckets,
  kBatchMixesBuckets,
  kEmptyEpoch,
  kIndexOutOfRange,
  kSampleRepeated,
  kNotFinite,
  kBatchSize,
  kDealtOtherwise,
  kGradientWrong,
  kBatchStatistics,
  kLossWeighting,
  kNoSecondDerivative,
  kRunningStatistics,
  kUniformFactor,
  kNotRefused,
  kMemoryImbalance,
  kBucketLayout,
  kRefusedInVain,
  kHistoryIncomplete,
  kEventsDropped,
  kCheckerFailed,
  kHostBrokeProtocol,
};

/// What a code is about. Findings of one family are told apart by their precedence.
enum class Family : std::uint8_t {
  kNone,
  kEnd,         ///< How a rank ended, or does not end.
  kStart,       ///< A rank that never came to its group.
  kLeftBehind,  ///< What is there when the job is over.
  kProcess,     ///< Other facts of processes.
  kMismatch,    ///< Calls that do not match.
  kLoopExit,    ///< Ranks that left a loop at different rounds.
  kWait,        ///< Ranks that wait.
  kData,        ///< Numbers and samples.
  kRecord,      ///< What lockstep could not see.
};

struct CodeRow {
  Code code{};
  std::string_view text{};   ///< "LS301".
  std::string_view slug{};   ///< "absent-rank": the code as a word.
  std::string_view title{};  ///< One line.
  Family family{};
  /// Of findings that are one divergence the smallest one is told: the most specific explanation
  /// that is proven. Of data: the point of a step at which it is compared, -1 before all steps.
  std::int32_t precedence{};
};

inline constexpr std::array kCodes{
    CodeRow{Code::kNone, "", "", "", Family::kNone, 80},
    CodeRow{Code::kRankDied, "LS101", "rank-died", "a rank died first", Family::kEnd, 10},
    CodeRow{Code::kLeftEarly, "LS102", "left-early", "a rank left while others still need it",
            Family::kEnd, 21},
    CodeRow{Code::kWillNotExit, "LS103", "will-not-exit", "a rank will not exit", Family::kEnd, 22},
    CodeRow{Code::kOrphan, "LS104", "orphan", "a process survives the job", Family::kLeftBehind,
            80},
    CodeRow{Code::kZombie, "LS105", "zombie", "a child was never reaped", Family::kProcess, 80},
    CodeRow{Code::kLeftover, "LS106", "leftover", "shared memory, a port or a file is left behind",
            Family::kLeftBehind, 80},
    CodeRow{Code::kNeverJoined, "LS107", "never-joined", "a rank never joined, or joined twice",
            Family::kStart, 10},
    CodeRow{Code::kHiddenFailure, "LS108", "hidden-failure", "a failure is hidden by exit status 0",
            Family::kProcess, 80},
    CodeRow{Code::kLauncherWaitsInOrder, "LS109", "launcher-waits-in-order",
            "the launcher waits for its ranks in the wrong order", Family::kProcess, 80},
    CodeRow{Code::kDevices, "LS110", "devices", "a GPU was chosen too late, or not at all",
            Family::kProcess, 80},
    CodeRow{Code::kDescriptors, "LS111", "descriptors", "open descriptors grow towards the limit",
            Family::kProcess, 80},
    CodeRow{Code::kDifferentOp, "LS201", "different-op",
            "ranks issue different operations at one place in the order", Family::kMismatch, 30},
    CodeRow{Code::kDifferentSize, "LS202", "different-size",
            "ranks disagree on the size of a collective", Family::kMismatch, 30},
    CodeRow{Code::kDifferentDtype, "LS203", "different-dtype", "ranks disagree on the element type",
            Family::kMismatch, 30},
    CodeRow{Code::kDifferentReduction, "LS204", "different-reduction",
            "ranks disagree on the reduction", Family::kMismatch, 30},
    CodeRow{Code::kDifferentRoot, "LS205", "different-root", "ranks disagree on the root",
            Family::kMismatch, 30},
    CodeRow{Code::kSwapped, "LS206", "swapped", "two calls that look alike are swapped",
            Family::kMismatch, 30},
    CodeRow{Code::kExtraCall, "LS207", "extra-call", "a rank makes one call too many",
            Family::kMismatch, 30},
    CodeRow{Code::kMissingCall, "LS208", "missing-call", "a rank leaves out a call",
            Family::kMismatch, 30},
    CodeRow{Code::kGroupDiffers, "LS209", "group-differs",
            "a group was created differently on its members", Family::kMismatch, 15},
    CodeRow{Code::kP2pUnmatched, "LS210", "p2p-unmatched", "a send and its receive do not match",
            Family::kMismatch, 30},
    CodeRow{Code::kTouchedInFlight, "LS211", "touched-in-flight",
            "a tensor was touched while a collective used it", Family::kMismatch, 30},
    CodeRow{Code::kUndefinedResult, "LS212", "undefined-result",
            "a result is used where it is undefined", Family::kMismatch, 30},
    CodeRow{Code::kTensorWithGaps, "LS213", "tensor-with-gaps",
            "a tensor with gaps is handed to a backend that does not see them", Family::kData, 29},
    CodeRow{Code::kAbsentRank, "LS301", "absent-rank",
            "a rank is absent from a collective that others wait in", Family::kWait, 60},
    CodeRow{Code::kWaitCycle, "LS302", "wait-cycle", "ranks wait for each other in a circle",
            Family::kWait, 40},
    CodeRow{Code::kStalledOutside, "LS303", "stalled-outside",
            "a rank is stalled on something outside collectives", Family::kWait, 50},
    CodeRow{Code::kSlow, "LS304", "slow", "a rank made the others wait, and came", Family::kWait,
            80},
    CodeRow{Code::kUnevenBatches, "LS305", "uneven-batches",
            "ranks ran different numbers of batches", Family::kLoopExit, 20},
    CodeRow{Code::kLeftLoop, "LS306", "left-loop", "ranks left a loop at different steps",
            Family::kLoopExit, 20},
    CodeRow{Code::kEveryoneInside, "LS307", "everyone-inside",
            "everyone is inside the same collective and it does not finish", Family::kWait, 70},
    CodeRow{Code::kParameterDiffers, "LS401", "parameter-differs",
            "a parameter differs between replicas", Family::kData, 8},
    CodeRow{Code::kBufferDiffers, "LS402", "buffer-differs",
            "a buffer is not what the contract says at entry of forward", Family::kData, 1},
    CodeRow{Code::kGradientNotSynchronised, "LS403", "gradient-not-synchronised",
            "a gradient differs between ranks although it was reduced", Family::kData, 5},
    CodeRow{Code::kOptimizerStateDiffers, "LS404", "optimizer-state-differs",
            "optimizer state differs between replicas", Family::kData, 9},
    CodeRow{Code::kRandomState, "LS405", "random-state",
            "random state is equal where it must differ, or differs where it must be equal",
            Family::kData, 10},
    CodeRow{Code::kInitialValue, "LS406", "initial-value",
            "replicas start with different values or in different order", Family::kData, -1},
    CodeRow{Code::kOutsideBuckets, "LS407", "outside-buckets",
            "a parameter is outside every bucket", Family::kData, 4},
    CodeRow{Code::kShardsOverlap, "LS411", "shards-overlap", "shards overlap", Family::kData, 24},
    CodeRow{Code::kSamplesMissed, "LS412", "samples-missed", "samples are missed", Family::kData,
            24},
    CodeRow{Code::kUnequalLengths, "LS413", "unequal-lengths", "shards have unequal lengths",
            Family::kData, 24},
    CodeRow{Code::kNotReshuffled, "LS414", "not-reshuffled", "an epoch is not reshuffled",
            Family::kData, 23},
    CodeRow{Code::kPaddingCounted, "LS415", "padding-counted", "padding is counted as data",
            Family::kData, 24},
    CodeRow{Code::kWrongLength, "LS416", "wrong-length", "a declared length is wrong",
            Family::kData, 27},
    CodeRow{Code::kListChanged, "LS417", "list-changed",
            "a sampler changes its caller's list of boundaries", Family::kData, 22},
    CodeRow{Code::kStepMixesBuckets, "LS418", "step-mixes-buckets",
            "ranks have batches of different buckets at a step", Family::kData, 26},
    CodeRow{Code::kBatchMixesBuckets, "LS419", "batch-mixes-buckets",
            "a batch has items of more than one bucket", Family::kData, 25},
    CodeRow{Code::kEmptyEpoch, "LS420", "empty-epoch", "a sampler yields nothing", Family::kData,
            21},
    CodeRow{Code::kIndexOutOfRange, "LS421", "index-out-of-range",
            "a sampler gives an index outside the dataset", Family::kData, 20},
    CodeRow{Code::kSampleRepeated, "LS422", "sample-repeated",
            "a sample is given twice to one rank", Family::kData, 24},
    CodeRow{Code::kNotFinite, "LS423", "not-finite", "a value is not finite", Family::kData, 0},
    CodeRow{Code::kBatchSize, "LS424", "batch-size", "a batch has not the size that was asked for",
            Family::kData, 27},
    CodeRow{Code::kDealtOtherwise, "LS425", "dealt-otherwise",
            "samples are dealt out in another order than declared", Family::kData, 27},
    CodeRow{Code::kGradientWrong, "LS501", "gradient-wrong",
            "a gradient differs from the reference", Family::kData, 7},
    CodeRow{Code::kBatchStatistics, "LS502", "batch-statistics",
            "batch statistics differ from the reference", Family::kData, 2},
    CodeRow{Code::kLossWeighting, "LS503", "loss-weighting",
            "the loss is weighted otherwise than declared", Family::kData, 3},
    CodeRow{Code::kNoSecondDerivative, "LS504", "no-second-derivative",
            "there is no second derivative", Family::kData, 3},
    CodeRow{Code::kRunningStatistics, "LS505", "running-statistics",
            "running statistics differ from the reference", Family::kData, 3},
    CodeRow{Code::kUniformFactor, "LS506", "uniform-factor", "all gradients are off by one factor",
            Family::kData, 6},
    CodeRow{Code::kNotRefused, "LS507", "not-refused", "what cannot be right was not refused",
            Family::kData, 0},
    CodeRow{Code::kMemoryImbalance, "LS508", "memory-imbalance",
            "the first replica holds more memory than its share", Family::kData, 9},
    CodeRow{Code::kBucketLayout, "LS509", "bucket-layout",
            "gradients are in other buckets than were asked for", Family::kData, 10},
    CodeRow{Code::kRefusedInVain, "LS510", "refused-in-vain", "what is right was refused",
            Family::kData, 0},
    CodeRow{Code::kHistoryIncomplete, "LS901", "history-incomplete", "the history is incomplete",
            Family::kRecord, 80},
    CodeRow{Code::kEventsDropped, "LS902", "events-dropped", "events were dropped", Family::kRecord,
            80},
    CodeRow{Code::kCheckerFailed, "LS903", "checker-failed", "a checker failed", Family::kRecord,
            80},
    CodeRow{Code::kHostBrokeProtocol, "LS904", "host-broke-protocol",
            "a rank host broke the protocol", Family::kRecord, 80},
};

constexpr const CodeRow& row_of(Code code) { return kCodes[static_cast<std::size_t>(code)]; }
constexpr std::string_view text_of(Code code) { return row_of(code).text; }
constexpr Family family_of(Code code) { return row_of(code).family; }

/// "LS301"; none if there is no such code.
constexpr std::optional<Code> code_of(std::string_view text) {
  const auto* const row = std::find_if(kCodes.begin(), kCodes.end(),
                                       [&](const CodeRow& each) { return each.text == text; });
  return row == kCodes.end() ? std::nullopt : std::optional(row->code);
}

/// What comes of another finding, and is told with it: a proven end explains that others wait, and
/// what they leave behind.
constexpr bool explains(Family family, Family later) {
  const bool waits = later == Family::kWait || later == Family::kLoopExit;
  return (family == Family::kEnd && (waits || later == Family::kLeftBehind)) ||
         (family == Family::kMismatch && waits);
}

}  // namespace lockstep

template <>
struct fmt::formatter<lockstep::Code> : fmt::formatter<std::string_view> {
  template <class Context>
  auto format(lockstep::Code code, Context& context) const {
    return fmt::formatter<std::string_view>::format(lockstep::text_of(code), context);
  }
};
