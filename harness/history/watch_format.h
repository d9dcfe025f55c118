// The file `<history>.lsw` beside a history: what the watch saw of the values in a rank. Written by
// the tap with --watch, read by everybody else.
//
//   header | records, one after the other, as far as `used` says
//
// All numbers are little endian. `used` is written last, so that a kill at any instant leaves whole
// records.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace lockstep::history {

constexpr std::uint64_t kWatchMagic = 0x0a315754'4157534cULL;  // "LSWATW1\n"
constexpr std::uint32_t kWatchVersion = 2;
constexpr std::uint64_t kWatchBytes = 4ULL << 20;

struct WatchHeader {
  std::uint64_t magic;
  std::uint32_t version;
  std::int32_t pid;
  std::uint64_t capacity;  ///< Bytes of the file.
  std::uint64_t used;      ///< Bytes of whole records, this header included.
  std::uint64_t dropped;   ///< Records that found no room.
  // What was watched, and what that took of the time of the program.
  std::uint64_t steps, watched;  ///< Calls of step() of an optimizer with replicas in it.
  std::uint64_t first_ns;        ///< Spent in the first steps, which are watched more often,
  std::uint64_t steady_ns;       ///< and in the later ones.
  std::uint64_t steady_since_ns, steady_until_ns;  ///< When these were; 0: not yet.
  std::uint64_t interval;                          ///< Collectives between two that are watched.
  std::uint64_t last_step_ns;                      ///< When the last one was made, watched or not.
};
static_assert(sizeof(WatchHeader) == 104 && std::is_trivially_copyable_v<WatchHeader>);

enum class WatchKind : std::uint32_t {
  kTensor = 1,
  kPoint = 2,
  kNotWatched = 3,
  kNonFinite = 4,
  kEpoch = 5,
  kHandedIn = 6,
  kMisuse = 7
};

struct WatchHead {
  WatchKind kind;
  std::uint32_t bytes;  ///< Of the whole record, a multiple of 8.
};

enum WatchTensorFlag : std::uint32_t {
  kReduced = 1U << 0,  ///< The reducer of its replica owns it.
  kIgnored = 1U << 1,  ///< Its replica was told to leave it alone.
  kBuffer = 1U << 2,   ///< No parameter.
  kLoose = 1U << 3,    ///< Of no replica: an optimizer has it.
  kAtStart = 1U << 4,  ///< It was there when its replica was first seen.
  kLate = 1U << 5,     ///< That was in a forward: nothing was sent when it was made.
};

/// A tensor of a replica; its name follows. Ids count from 0 in the order of these records.
struct WatchTensorRecord {
  WatchHead head;
  std::uint32_t group;    ///< Index in the history.
  std::uint32_t replica;  ///< Among those that were made with this group.
  std::uint32_t site;     ///< Of the history: where the replica was made.
  std::uint32_t flags;
  std::uint64_t numel;
  std::uint32_t dtype;  ///< history::DType.
  std::uint32_t name_bytes;
};
static_assert(sizeof(WatchTensorRecord) == 40);

/// The values with which an optimizer is about to step; its entries follow.
struct WatchPointRecord {
  WatchHead head;
  std::uint64_t at_ns;
  std::uint64_t position;  ///< Collectives issued on the group so far.
  std::uint64_t step;      ///< Of this optimizer, from 1.
  std::uint32_t ordinal;   ///< Among the steps of this optimizer at this position.
  std::uint32_t group;
  std::uint32_t optimizer;  ///< Or kAfterBroadcast.
  std::uint32_t count;
};
constexpr std::uint32_t kAfterBroadcast =
    ~0U;  ///< The buffers of a replica, that all were just sent.
static_assert(sizeof(WatchPointRecord) == 48);

enum WatchEntryFlag : std::uint32_t {
  kValueSeen = 1U << 0,
  kGradientSeen = 1U << 1,
  kStateSeen = 1U << 2,
  kValueNotFinite = 1U << 3,
  kGradientNotFinite = 1U << 4,
  kStateNotFinite = 1U << 5,
  kHooked = 1U << 6,  ///< Its replica has a communication hook of the program's.
  kAlone = 1U << 7,   ///< Its replica's last forward was within no_sync().
};

/// What is known of one tensor: a digest of its bytes, and of a slice of its elements (the same
/// ones on every rank) two sums with random signs and the norm. The difference of two such sums is
/// about as large as the difference of the slices.
struct WatchValue {
  std::uint64_t digest;
  double sums[2];
  double norm;
};

struct WatchEntry {
  std::uint32_t tensor;
  std::uint32_t flags;
  WatchValue value, gradient;
  std::uint64_t state;     ///< Digest of the optimizer's state of it.
  std::uint64_t settings;  ///< Of the settings of its parameter group.
  double learning_rate;
  std::uint64_t reserved;
};
static_assert(sizeof(WatchEntry) == 104);

/// Something that is not watched, and why; the text follows.
struct WatchUnseenRecord {
  WatchHead head;
  std::uint64_t at_ns;
  std::uint32_t text_bytes;
  std::uint32_t reserved;
};
static_assert(sizeof(WatchUnseenRecord) == 24);

/// What a rank handed to a reduction was not finite.
struct WatchNonFiniteRecord {
  WatchHead head;
  std::uint64_t at_ns;
  std::uint64_t position;  ///< Collectives issued on the group before it.
  std::uint64_t numel;
  std::uint32_t group;
  std::uint32_t site;
};
static_assert(sizeof(WatchNonFiniteRecord) == 40);

constexpr std::uint32_t kNoVersion = ~0U;

/// What a rank handed to one of the first reductions of a group, or before a watched step.
struct WatchHandedInRecord {
  WatchHead head;
  std::uint64_t at_ns;
  std::uint64_t position;  ///< Collectives issued on the group before it.
  std::uint64_t numel;
  WatchValue value;
  std::uint32_t group;
  std::uint32_t site;
  std::uint32_t version;  ///< How often it was changed in place before; kNoVersion: nobody counts.
  std::uint32_t reserved;
};
static_assert(sizeof(WatchHandedInRecord) == 80);

enum class WatchMisuse : std::uint32_t {
  kTouched = 1,    ///< Changed in place while an asynchronous collective was in flight.
  kUndefined = 2,  ///< What a reduce left on a rank that is not its root was handed on.
};

/// Something that was done with a tensor of a collective.
struct WatchMisuseRecord {
  WatchHead head;
  std::uint64_t at_ns;
  std::uint64_t position;  ///< Collectives issued on the group before it.
  std::uint64_t numel;
  WatchMisuse what;
  std::uint32_t group;
  std::uint32_t site;   ///< Of the collective.
  std::uint32_t later;  ///< Of the one that it was handed to; 0: to an optimizer.
};
static_assert(sizeof(WatchMisuseRecord) == 48);

enum WatchEpochFlag : std::uint32_t {
  kEnded = 1U << 0,     ///< The loop came to the loader's end.
  kIndexed = 1U << 1,   ///< The indices of all its samples are known.
  kTrained = 1U << 2,   ///< An optimizer stepped meanwhile.
  kShares = 1U << 3,    ///< Its sampler makes shares for ranks, and is told the epoch.
  kShuffles = 1U << 4,  ///< And says that it shuffles.
  kDropsLast = 1U << 5,
};

constexpr std::size_t kWatchBatches = 4;    ///< Of an epoch, that are looked at.
constexpr std::uint64_t kWatchPlaces = 32;  ///< Of a share, likewise.

/// A loop over a DataLoader that has come to its end or was left; a text follows: the class of its
/// sampler, and on the next line where the loop is.
struct WatchEpochRecord {
  WatchHead head;
  std::uint64_t at_ns;
  std::uint64_t received;  ///< Samples.
  std::uint64_t batches;
  std::uint64_t order;                   ///< Digest of the indices, in their order.
  std::uint64_t digests[kWatchBatches];  ///< Of the first batches; 0: not looked at.
  std::uint64_t share;                   ///< Samples of a share, as its sampler says.
  std::uint32_t replicas;                ///< And how many shares.
  std::uint32_t loader;                  ///< Among those of its sampler and line, from 1.
  std::uint32_t epoch;                   ///< Of this loader, from 1.
  std::uint32_t flags;
  std::uint32_t text_bytes;
  std::uint32_t taken;  ///< Which of the first samples of the share were received: a bit for each.
  std::uint32_t share_of;  ///< Whose share it is, as its sampler says, from 1; 0: not known.
  std::uint32_t seed;      ///< What its sampler shuffled by: its seed and its epoch together.
  std::uint64_t subset;  ///< Digest of the indices of the Subset that its sampler deals out, or 0.
};
static_assert(sizeof(WatchEpochRecord) == 120);

constexpr std::uint32_t kWatchSlice = 4096;      ///< Elements of a tensor that are summed.
constexpr std::uint32_t kWatchCallsOfLine = 64;  ///< That are looked at: the first ones.

}  // namespace lockstep::history
