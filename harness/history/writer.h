// Records the collectives of one process into a mapped file. Used inside the user's process, by any
// thread.
//
//   Writer* writer = Writer::open({"/dev/shm/run"});        // null: nothing can be written here at
//   all GroupHandle dp = writer->define_group({"dp", 2, 4, 1, ranks, 4}); Ticket ticket =
//   writer->issue(dp, call);                // before the call is passed on
//   writer->returned(ticket);                               // when it came back (also by
//   exception) writer->completed(ticket, failed);                      // when its result is there;
//   any thread, any time
//
// Promises: what issue() returned for is in the file even if SIGKILL comes next; nothing throws;
// nothing is held across the user's call; a full disk loses records, never the program. A forked
// child begins a file of its own at its first record, and touches none of its parent's.
//
// Header-only, C++17, standard library and Linux calls only. See format.h for the layout.
#pragma once

#include <sched.h>
#include <sys/syscall.h>

#include <new>

#include "harness/history/writer_file.h"
#include "harness/history/writer_sites.h"

#pragma GCC visibility push(hidden)

namespace lockstep::history {

struct GroupHandle {
  std::uint32_t index = ~0U;  ///< ~0: none; issue() then only counts a drop.
};

struct GroupInfo {
  const char* name = "";
  std::int32_t size = 0;
  std::int32_t my_rank = 0;
  const std::int32_t* ranks = nullptr;  ///< Global ranks by group rank; null = not known.
  std::uint32_t rank_count = 0;
  std::uint32_t site = 0;
  std::int64_t timeout_ms = 0;  ///< Its own limit for a wait; 0 = not known.
  /// Every collective from the group's creation on will be told. False for a group met when already
  /// in use.
  bool from_creation = false;
  bool named_by_store = false;  ///< See kNamedByStore.
  std::uint64_t store = 0;
};

/// A group whose members are about to meet; see CreationRecord.
struct CreationInfo {
  const char* name = "";
  std::uint64_t store = 0;
  std::int32_t size = 0;
  std::int32_t my_rank = 0;
  const std::int32_t* ranks = nullptr;  ///< Global ranks by group rank; null = not known.
  std::uint32_t rank_count = 0;
  std::uint32_t site = 0;
};

/// One more that a site begins: which it is, and whether it is to be told.
struct BeginCount {
  std::uint32_t count = 0;
  bool told = false;
  bool last = false;  ///< Later ones are not.
  bool any = false;   ///< Nor are those of sites that have not been counted yet.
};

/// One call, as Collective (run.h) describes it.
struct Issue {
  Op op = Op::kUnknown;
  DType dtype = DType::kNone;
  ReduceOp reduce_op = ReduceOp::kNone;
  bool async = false;
  std::int32_t root = -1;  ///< Root; for point-to-point the peer (-1: from anyone).
  std::int32_t tag = 0;
  std::uint64_t numel_in = 0, numel_out = 0;
  std::uint64_t counts_hash = 0;
  bool exchange = false;  ///< An all-to-all, of which these are told (format.h).
  std::uint64_t sent = 0, received = 0;
  bool gaps = false;  ///< See kGaps (format.h).
  std::int64_t timeout_ms = -1;
  std::uint32_t site = 0;
};

/// What links a return or completion to its record. A plain value; keep it as long as you like.
struct Ticket {
  std::uint64_t record = 0;
  Slot* slot = nullptr;  ///< Where the record lies, or lay until the ring came round.
  std::uint64_t lap = 0;
  std::uint64_t issued_ns = 0;
  std::uint32_t epoch = 0;  ///< 0: not recorded.
  std::uint32_t group = 0;
  std::uint32_t channel = 0;  ///< Point-to-point: index + 1.
  std::uint32_t thread = 0;
  bool point_to_point = false;
};

class Writer {
 public:
  static Writer* open(const WriterOptions& options) noexcept;
  ~Writer();
  Writer(const Writer&) = delete;
  Writer& operator=(const Writer&) = delete;

  void set_rank(std::int32_t rank, std::int32_t world_size) noexcept;
  /// The GPU of the process, one of `visible`. To be called once.
  void set_device(std::int32_t index, std::int32_t visible,
                  const std::uint8_t (&uuid)[16]) noexcept;
  GroupHandle define_group(const GroupInfo& info) noexcept;
  /// Whether there is a file of this process. (A group that is defined begins one.)
  bool begun() const noexcept;
  /// Where there is a file.
  void begin_creation(const CreationInfo& info) noexcept;
  /// The same of calls named `op` that were set aside; see SetAsideRecord.
  void set_aside(const char* op, std::uint32_t calls) noexcept;
  /// Whether this process could tell what it begins before it has a file, and after a fork.
  [[nodiscard]] bool remembers() const noexcept { return wipes_; }
  /// To be asked for each, then told if the answer says so. Needs no file: one that is begun later
  /// holds what was told before. Of each site the first ones are told.
  BeginCount count_begin(Begins what, std::uint32_t site) noexcept;
  void tell_begin(Begins what, std::uint32_t site, const BeginCount& count,
                  const char* path) noexcept;
  /// What this group is has come out.
  void redefine_group(GroupHandle group, const GroupInfo& info) noexcept;
  /// Whether its calls are all made inside those of other groups, which tell them.
  void is_inside(GroupHandle group, bool inside) noexcept;
  /// From now on absence of a record says nothing for this group: calls went past the tap.
  void met_late(GroupHandle group) noexcept;
  /// Collectives issued on it so far; equal on all members between two of them.
  [[nodiscard]] std::uint64_t issued_on(GroupHandle group) const noexcept {
    return inherited() || group.index >= WriterFile::kGroupsMax
               ? 0
               : __atomic_load_n(&volatile_->groups[group.index].issued, __ATOMIC_RELAXED);
  }

  /// Id of the call site whose return addresses these are, innermost first. A known one costs about
  /// 10 ns.
  std::uint32_t site(const void* const* return_addresses, std::uint32_t count) noexcept;
  /// The same in two steps, for frames that are not native: the key is the caller's, equal for
  /// equal sites.
  std::uint32_t find_site(
      std::uint64_t key) const noexcept;  ///< InternTable::kNotFound: define it.
  std::uint32_t define_site(std::uint64_t key, const SiteFrame* frames,
                            std::uint32_t count) noexcept;

  Ticket issue(GroupHandle group, const Issue& call) noexcept;
  void returned(const Ticket& ticket, bool threw = false) noexcept;
  void completed(const Ticket& ticket, bool failed = false) noexcept;
  /// Both at one instant (the call blocks until its result is there), for the price of one clock
  /// read.
  void returned_completed(const Ticket& ticket, bool failed = false) noexcept;
  /// It came back, and nothing will ever tell when its result is there.
  void returned_untold(const Ticket& ticket) noexcept;

  /// Writes the closing record. Later records are still taken, and make the file "not closed"
  /// again.
  void close() noexcept;
  [[nodiscard]] const char* path() const noexcept { return file_.path(); }

 private:
  struct GroupState {
    std::uint32_t lock;
    std::uint32_t reserved;
    std::uint64_t inside;  // see enter()
    std::uint64_t issued, p2p_issued;
    std::uint64_t signature_chain, site_chain;
    std::uint64_t padding[2];
  };
  struct BeginSite {
    std::uint64_t key;
    std::uint64_t count;
  };
  static constexpr std::uint32_t kBeginSites = 512;     // Of files at most half,
  static constexpr std::uint32_t kBeginSitesMax = 192;  // and of the others.
  static constexpr std::uint64_t kBeginsOfSite = 1024;
  struct Channel {
    std::uint64_t key;
    std::uint64_t issued;
    std::uint64_t inside;
  };
  static constexpr std::uint32_t kChannelsMax = 8192;
  enum : std::uint32_t { kWiped = 0, kReady = 1, kOpening = 2, kOff = 3 };
  /// Wiped to zeros in a forked child, so that no lock is inherited held and the fork is noticed.
  struct Volatile {
    std::uint32_t state;
    std::uint32_t define_lock;
    std::uint32_t pending_lock;
    std::uint32_t grow_lock;
    std::uint32_t pending_next;
    std::uint32_t begin_sites[2];  // Others, files.
    std::uint32_t begins_end;
    BeginSite begins[kBeginSites];
    GroupState groups[WriterFile::kGroupsMax];
    Channel channels[kChannelsMax];
  };

  Writer() = default;
  void lock_definitions() noexcept;
  BeginSite* begin_site(Begins what, std::uint32_t site) noexcept;
  bool ready() noexcept;
  bool inherited() const noexcept;
  bool live(const Ticket& ticket) const noexcept;
  bool begin_file() noexcept;
  void write_group(std::uint32_t index) noexcept;
  void describe_group(std::uint32_t index, const GroupInfo& info) noexcept;
  void set_flags(GroupHandle group, std::uint32_t set, std::uint32_t cleared) noexcept;
  GroupEntry& entry(std::uint32_t group) noexcept;
  void fold_signature(GroupState& state, GroupEntry& totals, std::uint32_t group,
                      const Issue& call) noexcept;
  Slot* locate(std::uint64_t record, std::uint64_t& lap) noexcept;
  bool take_slot(Ticket& ticket) noexcept;
  void retire(Slot& slot, std::uint64_t lap) noexcept;
  Slot* free_pending() noexcept;
  static std::uint64_t stamp_now(const Ticket& ticket, bool error) noexcept;
  bool set_stamp(const Ticket& ticket, std::uint64_t Slot::*word, std::uint64_t value) noexcept;
  bool set_pending(std::uint64_t record, std::uint64_t Slot::*word, std::uint64_t value) noexcept;
  Channel* channel_of(std::uint32_t group, Op op, std::int32_t peer, std::int32_t tag,
                      std::uint32_t& number) noexcept;
  void leave(const Ticket& ticket) noexcept;
  void drop(std::uint64_t FileHeader::*counter) noexcept;

  static bool is_open(const Slot& slot) noexcept;
  static void begin_writing(std::uint64_t& commit) noexcept;
  static void lock(std::uint32_t& word) noexcept;
  static void unlock(std::uint32_t& word) noexcept {
    __atomic_store_n(&word, 0U, __ATOMIC_RELEASE);
  }
  static bool enter(std::uint64_t& inside, std::uint32_t thread) noexcept;
  static std::uint64_t inside_one(std::uint32_t thread) noexcept;
  std::uint32_t thread_id() const noexcept;

  WriterOptions options_{};
  char directory_[PATH_MAX] = {};
  char torch_version_[64] = {};
  WriterFile file_;
  Definitions definitions_;
  GroupEntry* groups_ = nullptr;  // Private copy of what was defined; counts stay zero.
  std::uint32_t group_count_ = 0;
  std::uint32_t epoch_ = 0;
  std::int32_t owner_pid_ = 0;
  bool forked_ = false;  // Only where the kernel cannot wipe on fork.
  bool wipes_ = false;
  Volatile* volatile_ = nullptr;
};

}  // namespace lockstep::history

#pragma GCC visibility pop

#include "harness/history/writer_begins.h"
#include "harness/history/writer_creations.h"
#include "harness/history/writer_groups.h"
#include "harness/history/writer_impl.h"
#include "harness/history/writer_slots.h"
