// The history file `<host>-<pid>-<start ticks>-<n>.lsh`: the layout that the writer inside a rank
// and the reader agree on. C++17, standard library only: the tap is compiled on the user's host.
//
//   header page | definitions | group table | digests | pending slots | ring of collective slots
//
// All numbers are little endian. Everything the writer changes later is one aligned 64- or 32-bit
// word, so that a kill at any instant leaves each word old or new. Offsets and capacities stand in
// the header.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "harness/history/vocabulary.h"

namespace lockstep::history {

constexpr std::uint64_t kFileMagic = 0x0a315453'4948534cULL;  // "LSHIST1\n"
constexpr std::uint32_t kFormatVersion = 1;
constexpr std::uint64_t kClosedMagic = 0x444e4520'53494854ULL;  // "THIS END": the file is complete.
constexpr std::uint32_t kDigestBlock =
    1024;  ///< Collectives of a group per entry of its digest chain.
constexpr std::uint32_t kLastSignatures = 64;
constexpr std::uint32_t kFramesMax = 64;    ///< Of one call site.
constexpr std::uint32_t kInlineRanks = 32;  ///< More global ranks than this go into a definition.
constexpr std::uint64_t kDefaultFileBytes = 64ULL << 20;
constexpr std::uint64_t kSeqUnknown =
    ~0ULL;  ///< A point-to-point operation whose channel had no counter.

/// What the writer of a file can see; what it cannot is said in the report.
enum Capability : std::uint64_t {
  kSeesCompletion = 1U << 0,   ///< Completions are told for operations that have them.
  kSeesSites = 1U << 1,        ///< Native call sites.
  kSeesPythonSites = 1U << 2,  ///< Python call sites.
  kForkedChild = 1U << 3,      ///< The file was begun by a child after fork, at its first record.
  kSeesBackends = 1U << 4,     ///< Calls on a backend itself, past c10d's operators.
};

struct FileHeader {
  std::uint64_t magic;
  std::uint32_t version;
  std::uint32_t header_bytes;
  // Layout. All zero capacities: not even the base areas fitted (header-only file).
  std::uint64_t definitions_offset, definitions_bytes;
  std::uint64_t groups_offset, groups_capacity;
  std::uint64_t digests_offset, digests_capacity;
  std::uint64_t pending_offset, pending_capacity;
  std::uint64_t ring_offset, ring_capacity;  ///< The capacity asked for; see reserved_slots.
  // Identity.
  std::uint64_t start_ticks, pid_namespace, capabilities;
  std::uint64_t monotonic_ns, wall_ns;  ///< Read together when the file was begun.
  std::int32_t pid, parent_pid;
  std::int32_t rank, world_size;  ///< -1, 0: not known (yet).
  char boot_id[40];
  char host[64];
  char torch_version[64];
  std::uint8_t device_uuid[16];
  std::int32_t device_index, devices_visible;  ///< The latter written last; 0: no GPU (yet).
  std::uint8_t reserved_identity[512 - 344];
  // Counters, each a single word. The hot one has a cache line to itself.
  std::uint64_t next_record;  ///< Numbers taken: the next record gets this one.
  std::uint8_t reserved_hot[56];
  std::uint64_t definitions_used;
  std::uint64_t groups_used;
  std::uint64_t digests_used;
  std::uint64_t reserved_slots;  ///< Slots that have space behind them: the ring as far as it got.
  std::uint64_t
      ring_final;  ///< Once the ring stops growing: its size, and slot = record % ring_final.
  std::uint64_t growth_errno;  ///< Why the ring stopped before ring_capacity; 0 = it did not.
  // What was lost, by kind.
  std::uint64_t dropped_records;  ///< Not written at all: no ring, no group entry, or slot busy.
  std::uint64_t dropped_definitions;  ///< Strings, sites or rank lists that found no room.
  std::uint64_t dropped_groups;
  std::uint64_t dropped_digests;
  std::uint64_t dropped_pending;   ///< Incomplete records that left the ring and found no room.
  std::uint64_t dropped_channels;  ///< Point-to-point records without sequence number.
  // Closing record: complete if closed == kClosedMagic and closed_records == next_record.
  std::uint64_t closed_records;
  std::uint64_t closed;
  std::uint64_t closed_ns;  ///< When it was written; 0: by a lockstep that did not say.
  std::uint8_t reserved_tail[4096 - 696];
};
static_assert(sizeof(FileHeader) == 4096 && offsetof(FileHeader, next_record) == 512);
static_assert(std::is_trivially_copyable_v<FileHeader>);

// --- Definitions: append-only; each begins with its commit word, written last
// ------------------------------

enum class DefinitionKind : std::uint16_t {
  kString = 1,
  kSite = 2,
  kGroupRanks = 3,
  kCreation = 4,
  kSetAside = 5,
  kBegun = 6
};
constexpr std::uint64_t kDefinitionMagic = 0x4c44;  // in the commit word's top 16 bits

struct DefinitionHead {
  std::uint64_t
      commit;        ///< magic << 48 | kind << 32 | bytes of the whole definition, a multiple of 8.
  std::uint32_t id;  ///< Strings and sites count from 1; for ranks the group's index.
  std::uint32_t count;  ///< String bytes, frames, or ranks.
};
static_assert(sizeof(DefinitionHead) == 16);

constexpr std::uint64_t definition_commit(DefinitionKind kind, std::uint32_t bytes) {
  return kDefinitionMagic << 48 | static_cast<std::uint64_t>(kind) << 32 | bytes;
}

/// One frame of a site. Native: module and offset. Python: file as module, qualified name as
/// function.
struct FrameRecord {
  std::uint32_t module;    ///< String id; 0 = none.
  std::uint32_t function;  ///< String id; 0 = to be resolved offline.
  std::uint64_t offset;
  std::int32_t line;  ///< 0 = to be resolved offline.
  std::uint32_t reserved;
};
static_assert(sizeof(FrameRecord) == 24);

/// A group that is about to be created: its members have not met yet, and may never. The first
/// group of a process, with which the file begins, has none. Counted from 0 by the head's id;
/// behind it lie the global ranks of its members, as many as the head counts (none: not told).
struct CreationRecord {
  std::uint64_t at_ns;
  std::uint64_t store;  ///< Equal where members of one name can meet; 0 = not known.
  std::uint32_t name;   ///< String id.
  std::uint32_t site;
  std::int32_t size;
  std::int32_t my_rank;
};
static_assert(sizeof(CreationRecord) == 32);
/// Calls that PyTorch had set aside to make together, and had not made when the world was left.
struct SetAsideRecord {
  std::uint64_t at_ns;
  std::uint32_t op;  ///< String id.
  std::uint32_t calls;
};
static_assert(sizeof(SetAsideRecord) == 16);
/// What the program was about to begin, by Python's audit events. A forked child's file holds what
/// its parent began, too: `pid` tells them apart.
struct BegunRecord {
  std::uint64_t at_ns;
  std::uint32_t site;  ///< 0 with `last_told`: any.
  std::uint32_t path;  ///< String id; of a file.
  std::int32_t pid;
  std::uint32_t count;      ///< Which of those from this site.
  std::uint32_t what;       ///< Begins.
  std::uint32_t last_told;  ///< 1: from here on those from this site are not told.
};
static_assert(sizeof(BegunRecord) == 32);
constexpr std::uint32_t kCreationRanksMax = 1024;  ///< Of more members none is told.

// --- Group table: never overwritten
// ------------------------------------------------------------------------

enum GroupFlag : std::uint32_t {
  kSeenFromCreation = 1U << 0,
  kMetLate = 1U << 1,  ///< Collectives may have gone before (or past) the tap.
  kRanksKnown = 1U << 2,
  kNameTruncated = 1U << 3,
  kNamedByStore = 1U << 4,  ///< It has no name of its own: it is told by where its members meet.
  kInside = 1U << 5,        ///< Called inside calls of other groups alone; they tell all of it.
};

struct GroupEntry {
  std::uint64_t commit;  ///< Index + 1, written last.
  std::uint32_t generation;
  std::int32_t size;
  std::int32_t my_rank;
  std::uint32_t site;
  std::uint32_t flags;
  std::uint32_t rank_count;
  std::uint64_t created_ns;
  // Collectives only; point-to-point below. Dropped records are counted too.
  std::uint64_t issued, returned, completed;
  std::uint64_t signature_chain, site_chain;  ///< Heads of the digest chain.
  std::uint64_t p2p_issued, p2p_returned, p2p_completed;
  std::int64_t timeout_ms;  ///< 0 = not known.
  std::uint64_t store;      ///< Of kNamedByStore: equal where its members can meet; 0 = not known.
  std::uint32_t renamed;    ///< How often it was; written after what it changed.
  std::uint8_t reserved[4];
  std::uint64_t signatures[kLastSignatures];  ///< Of collective seq: [seq % 64].
  char name[256];  ///< Zero-terminated; a longer one is cut and hashed at its end.
  std::int32_t ranks[kInlineRanks];
};
static_assert(sizeof(GroupEntry) == 1024);

/// The heads of both chains after block `block` of a group. Chains, so that equal heads mean equal
/// histories.
struct DigestEntry {
  std::uint64_t commit;  ///< Its index + 1, written last.
  std::uint32_t group;
  std::uint32_t block;
  std::uint64_t signature;
  std::uint64_t site;
};
static_assert(sizeof(DigestEntry) == 32);

// --- Slots
// --------------------------------------------------------------------------------------------------

enum SlotFlag : std::uint8_t {
  kAsync = 1U << 0,
  kOverlapped = 1U << 1,
  kNeverTold = 1U << 2,  ///< In older files, for kStampNeverTold.
  kExchange = 1U << 3,   ///< `sent` and `received` are told.
  kGaps = 1U << 4,       ///< A tensor with gaps, to a backend that does not look.
};

/// One collective. `returned` and `completed` are stamps; the rest is constant once committed.
struct Slot {
  std::uint64_t commit;  ///< Record number + 1; 0 while the slot is being written.
  std::uint64_t returned, completed;
  std::uint64_t issued_ns;
  std::uint64_t seq;
  std::uint64_t numel_in, numel_out;
  std::uint64_t counts_hash;
  std::int64_t timeout_ms;
  std::uint64_t
      ordinal;  ///< Of this record among its group's collectives, or among its group's p2p.
  std::uint32_t group;
  std::uint32_t site;
  std::uint32_t thread;
  std::int32_t root;
  std::int32_t tag;
  std::uint8_t op, dtype, reduce_op, flags;
  std::uint64_t sent, received;  ///< Of an all-to-all, see share_of_sender().
  std::uint8_t reserved[8];
};
static_assert(sizeof(Slot) == 128);

/// A stamp: lap of the ring (15 bits), error bit, nanoseconds since the issue (48 bits, 0 = not
/// yet, saturating; all set = it will never be told). The lap keeps a late completion from marking
/// the record that has taken over the slot.
constexpr std::uint64_t kStampNeverTold = (1ULL << 48) - 1;
constexpr std::uint64_t kStampDeltaMax = kStampNeverTold - 1;
constexpr std::uint64_t empty_stamp(std::uint64_t lap) { return (lap & 0x7fff) << 49; }
constexpr std::uint64_t stamp(std::uint64_t lap, bool error, std::uint64_t delta_ns) {
  const std::uint64_t delta = delta_ns == 0               ? 1
                              : delta_ns > kStampDeltaMax ? kStampDeltaMax
                                                          : delta_ns;
  return empty_stamp(lap) | static_cast<std::uint64_t>(error) << 48 | delta;
}
constexpr std::uint64_t stamp_never_told(std::uint64_t lap) {
  return empty_stamp(lap) | kStampNeverTold;
}
constexpr std::uint64_t stamp_delta(std::uint64_t word) { return word & kStampNeverTold; }
constexpr bool stamp_error(std::uint64_t word) { return (word >> 48 & 1) != 0; }

// --- Hashes
// -------------------------------------------------------------------------------------------------

/// One step of a 64-bit hash chain (multiply and fold); constant across builds, as it is written to
/// files.
constexpr std::uint64_t mix(std::uint64_t hash, std::uint64_t value) {
  hash = (hash ^ value) * 0x9e3779b97f4a7c15ULL;
  return hash ^ hash >> 32;
}

constexpr std::uint64_t hash_bytes(const char* bytes, std::size_t count) {
  std::uint64_t hash = 0xcbf29ce484222325ULL;  // FNV-1a
  for (std::size_t i = 0; i < count; ++i)
    hash = (hash ^ static_cast<unsigned char>(bytes[i])) * 0x100000001b3ULL;
  return hash;
}

/// All-to-all: what rank i sends to rank j must be what j receives from i, for each pair. A rank
/// tells two sums: `sent` is the sum over j of share_of_receiver(j) times the elements that it
/// sends to j, `received` that over i of share_of_sender(i) times those that it receives from i. If
/// all pairs fit, the sum over all ranks r of share_of_sender(r) * sent equals that of
/// share_of_receiver(r) * received; if one does not, they differ (but for one case in about 2^63).
/// 0 where a rank deals its elements out evenly.
constexpr std::uint64_t share_of_sender(std::uint64_t rank) { return mix(0x73656e64, rank) | 1; }
constexpr std::uint64_t share_of_receiver(std::uint64_t rank) { return mix(0x72656376, rank) | 1; }

/// What every member must give alike for an operation to match. Where members may differ by rights
/// (uneven lists, lists on the root only) the field is left out: a signature must never differ on a
/// healthy program.
struct Agreement {
  bool dtype{}, reduce_op{}, root{}, numel_in{}, numel_out{};
};

constexpr Agreement must_agree(Op op) {
  switch (op) {
    case Op::kAllReduce:
    case Op::kAllReduceCoalesced:
      return {true, true, false, true, true};
    case Op::kBroadcast:
      return {true, false, true, true, true};
    case Op::kReduce:
      return {true, true, true, true, false};
    case Op::kAllGather:  // Members may hand in different sizes; the lists that receive them are
                          // alike.
      return {true, false, false, false, true};
    case Op::kAllGatherSingle:
    case Op::kAllGatherCoalesced:
      return {true, false, false, true, true};
    case Op::kReduceScatter:
      return {true, true, false, true, false};
    case Op::kReduceScatterSingle:
    case Op::kReduceScatterCoalesced:
      return {true, true, false, true, true};
    case Op::kGather:
    case Op::kScatter:
      return {true, false, true, false, false};
    case Op::kAllToAll:
    case Op::kAllToAllSingle:
      return {true, false, false, false, false};
    default:  // Barriers carry nothing; of an unknown operation only the fact is known.
      return {};
  }
}

/// Equal on all members of a healthy collective.
constexpr std::uint64_t signature(Op op, DType dtype, ReduceOp reduce_op, std::int32_t root,
                                  std::uint64_t numel_in, std::uint64_t numel_out) {
  const Agreement agree = must_agree(op);
  const std::uint64_t kinds =
      static_cast<std::uint64_t>(op) | (agree.dtype ? static_cast<std::uint64_t>(dtype) << 8 : 0) |
      (agree.reduce_op ? static_cast<std::uint64_t>(reduce_op) << 16 : 0) |
      (agree.root ? std::uint64_t{static_cast<std::uint32_t>(root)} << 32 : 0);
  return mix(mix(mix(0x6c6f636b73746570ULL, kinds), agree.numel_in ? numel_in : 0),
             agree.numel_out ? numel_out : 0);
}

}  // namespace lockstep::history
