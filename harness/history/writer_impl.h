// The bodies of Writer, slots apart; included by writer.h only.
#pragma once

#pragma GCC visibility push(hidden)

namespace lockstep::history {

// --- Opening, forking, closing
// ------------------------------------------------------------------------------

inline Writer* Writer::open(const WriterOptions& options) noexcept {
  const QuietCall quiet;
  auto* const writer = new (std::nothrow) Writer;
  if (writer == nullptr)
    return nullptr;
  writer->options_ = options;
  // The child of a fork opens from this copy, wherever the program has moved since.
  if (options.directory == nullptr || realpath(options.directory, writer->directory_) == nullptr)
    writer->directory_[0] = 0;
  writer->options_.directory = writer->directory_;
  if (options.torch_version != nullptr)
    std::strncpy(writer->torch_version_, options.torch_version, sizeof writer->torch_version_ - 1);
  writer->options_.torch_version = writer->torch_version_;

  writer->volatile_ = static_cast<Volatile*>(map_private(sizeof(Volatile)));
  writer->groups_ =
      static_cast<GroupEntry*>(map_private(WriterFile::kGroupsMax * sizeof(GroupEntry)));
  if (writer->volatile_ == nullptr || writer->groups_ == nullptr ||
      !writer->definitions_.allocate(WriterFile::definitions_bytes(options.file_bytes)) ||
      !(options.at_first_group ? access(writer->directory_, W_OK) == 0 : writer->begin_file())) {
    delete writer;
    return nullptr;
  }
  writer->owner_pid_ = getpid();
  writer->wipes_ = madvise(writer->volatile_, sizeof(Volatile), MADV_WIPEONFORK) == 0;
  if (!options.at_first_group)
    __atomic_store_n(&writer->volatile_->state, static_cast<std::uint32_t>(kReady),
                     __ATOMIC_RELEASE);
  return writer;
}

inline Writer::~Writer() {
  if (volatile_ != nullptr) {
    if (inherited())
      file_.forget();
    munmap(volatile_, sizeof(Volatile));
  }
  if (groups_ != nullptr)
    munmap(groups_, WriterFile::kGroupsMax * sizeof(GroupEntry));
  definitions_.release();
}

inline bool Writer::inherited() const noexcept {
  return __atomic_load_n(&volatile_->state, __ATOMIC_ACQUIRE) == kWiped ||
         (!wipes_ && owner_pid_ != getpid());
}

inline bool Writer::begin_file() noexcept {
  file_.forget();
  if (!file_.create(options_))
    return false;
  lock(volatile_->define_lock);
  owner_pid_ = getpid();
  // Unique across the processes and files of a fork family: tickets and cached thread ids carry it.
  epoch_ = static_cast<std::uint32_t>(owner_pid_) << 8 | ((epoch_ + 1) & 0xff);
  definitions_.attach(file_.header, file_.base);
  unlock(volatile_->define_lock);
  for (std::uint32_t i = 0; i < group_count_ && i < file_.header->groups_capacity; ++i) {
    groups_[i].flags =
        (groups_[i].flags & ~std::uint32_t{kSeenFromCreation}) | kMetLate;  // The parent used it.
    write_group(i);
  }
  return true;
}

inline bool Writer::ready() noexcept {
  if (!wipes_ && owner_pid_ != getpid()) {
    forked_ = true;
    owner_pid_ = getpid();
    std::memset(static_cast<void*>(volatile_), 0, sizeof(Volatile));
  }
  for (;;) {
    std::uint32_t state = __atomic_load_n(&volatile_->state, __ATOMIC_ACQUIRE);
    if (__builtin_expect(state == kReady, 1))
      return true;
    if (state == kOff)
      return false;
    if (state == kWiped && __atomic_compare_exchange_n(&volatile_->state, &state, kOpening, false,
                                                       __ATOMIC_ACQUIRE, __ATOMIC_ACQUIRE)) {
      const QuietCall quiet;
      if (forked_ || owner_pid_ != getpid())
        options_.capabilities |= kForkedChild;
      __atomic_store_n(&volatile_->state, static_cast<std::uint32_t>(begin_file() ? kReady : kOff),
                       __ATOMIC_RELEASE);
      continue;
    }
    sched_yield();
  }
}

inline bool Writer::live(const Ticket& ticket) const noexcept {
  return ticket.epoch != 0 && !inherited() && ticket.epoch == epoch_ && file_.header != nullptr;
}

inline void Writer::set_rank(std::int32_t rank, std::int32_t world_size) noexcept {
  options_.rank = rank;
  options_.world_size = world_size;
  if (inherited() || file_.header == nullptr)
    return;
  __atomic_store_n(&file_.header->world_size, world_size, __ATOMIC_RELAXED);
  __atomic_store_n(&file_.header->rank, rank, __ATOMIC_RELEASE);
}

inline void Writer::set_device(std::int32_t index, std::int32_t visible,
                               const std::uint8_t (&uuid)[16]) noexcept {
  if (inherited() || file_.header == nullptr)
    return;
  std::memcpy(file_.header->device_uuid, uuid, sizeof uuid);
  file_.header->device_index = index;
  __atomic_store_n(&file_.header->devices_visible, visible, __ATOMIC_RELEASE);
}

inline void Writer::close() noexcept {
  // (A child of vfork() has the memory of its parent, which goes on.)
  if (inherited() || file_.header == nullptr || owner_pid_ != getpid())
    return;
  FileHeader& header = *file_.header;
  __atomic_store_n(&header.closed_records, __atomic_load_n(&header.next_record, __ATOMIC_ACQUIRE),
                   __ATOMIC_RELAXED);
  __atomic_store_n(&header.closed_ns, clock_ns(CLOCK_MONOTONIC), __ATOMIC_RELAXED);
  __atomic_store_n(&header.closed, kClosedMagic, __ATOMIC_RELEASE);
}

// --- Definitions
// --------------------------------------------------------------------------------------------

inline std::uint32_t Writer::find_site(std::uint64_t key) const noexcept {
  return definitions_.find_site(key);
}

inline std::uint32_t Writer::define_site(std::uint64_t key, const SiteFrame* frames,
                                         std::uint32_t count) noexcept {
  if (!wipes_ && !ready())
    return 0;
  const QuietCall quiet;
  lock_definitions();
  std::uint32_t id = definitions_.find_site(key);
  if (id == InternTable::kNotFound)
    id = definitions_.add_site(key, frames, count);
  unlock(volatile_->define_lock);
  return id;
}

inline std::uint32_t Writer::site(const void* const* return_addresses,
                                  std::uint32_t count) noexcept {
  count = count < kFramesMax ? count : kFramesMax;
  std::uint64_t key = count;
  for (std::uint32_t i = 0; i < count; ++i)
    key = mix(key, reinterpret_cast<std::uint64_t>(return_addresses[i]));
  const std::uint32_t known = definitions_.find_site(key);
  if (known != InternTable::kNotFound)
    return known;
  const QuietCall quiet;
  char main_path[PATH_MAX];
  SiteFrame frames[kFramesMax];
  resolve_return_addresses(return_addresses, count, frames, main_path, sizeof main_path);
  return define_site(key, frames, count);
}

// --- Records
// ------------------------------------------------------------------------------------------------

inline Ticket Writer::issue(GroupHandle group, const Issue& call) noexcept {
  if (!ready())
    return {};
  FileHeader& header = *file_.header;
  if (header.ring_capacity == 0 ||
      group.index >= __atomic_load_n(&group_count_, __ATOMIC_ACQUIRE)) {
    drop(&FileHeader::dropped_records);
    return {};
  }
  Ticket ticket{};
  ticket.epoch = epoch_;
  ticket.group = group.index;
  ticket.thread = thread_id();
  ticket.point_to_point = is_point_to_point(call.op);
  GroupState& state = volatile_->groups[group.index];
  GroupEntry& totals = entry(group.index);
  Channel* const channel =
      ticket.point_to_point ? channel_of(group.index, call.op, call.root, call.tag, ticket.channel)
                            : nullptr;

  lock(state.lock);
  bool overlapped = false;
  if (!ticket.point_to_point)
    overlapped = enter(state.inside, ticket.thread);
  else if (channel != nullptr)
    overlapped = enter(channel->inside, ticket.thread);
  const std::uint64_t ordinal = ticket.point_to_point ? state.p2p_issued : state.issued;
  const std::uint64_t seq = !ticket.point_to_point ? ordinal
                            : channel != nullptr   ? channel->issued
                                                   : kSeqUnknown;
  ticket.record = __atomic_fetch_add(&header.next_record, 1, __ATOMIC_RELAXED);
  ticket.issued_ns = clock_ns(CLOCK_MONOTONIC);

  if (take_slot(ticket)) {
    Slot* const slot = ticket.slot;
    slot->issued_ns = ticket.issued_ns;
    slot->seq = seq;
    slot->numel_in = call.numel_in;
    slot->numel_out = call.numel_out;
    slot->counts_hash = call.counts_hash;
    slot->sent = call.sent;
    slot->received = call.received;
    slot->timeout_ms = call.timeout_ms;
    slot->ordinal = ordinal;
    slot->group = group.index;
    slot->site = call.site;
    slot->thread = ticket.thread;
    slot->root = call.root;
    slot->tag = call.tag;
    slot->op = static_cast<std::uint8_t>(call.op);
    slot->dtype = static_cast<std::uint8_t>(call.dtype);
    slot->reduce_op = static_cast<std::uint8_t>(call.reduce_op);
    slot->flags =
        static_cast<std::uint8_t>((call.async ? kAsync : 0) | (overlapped ? kOverlapped : 0) |
                                  (call.exchange ? kExchange : 0) | (call.gaps ? kGaps : 0));
    __atomic_store_n(&slot->commit, ticket.record + 1, __ATOMIC_RELEASE);
  } else {
    drop(&FileHeader::dropped_records);
    __atomic_fetch_and(&totals.flags, ~std::uint32_t{kSeenFromCreation}, __ATOMIC_RELEASE);
  }
  // Counted after the commit: a number in the table is never ahead of what the ring can show.
  if (ticket.point_to_point) {
    state.p2p_issued = ordinal + 1;
    __atomic_store_n(&totals.p2p_issued, ordinal + 1, __ATOMIC_RELEASE);
    if (channel != nullptr)
      channel->issued = seq + 1;
  } else {
    fold_signature(state, totals, group.index, call);
    state.issued = ordinal + 1;
    __atomic_store_n(&totals.issued, ordinal + 1, __ATOMIC_RELEASE);
  }
  unlock(state.lock);
  return ticket;
}

inline void Writer::fold_signature(GroupState& state, GroupEntry& totals, std::uint32_t group,
                                   const Issue& call) noexcept {
  const std::uint64_t mine =
      signature(call.op, call.dtype, call.reduce_op, call.root, call.numel_in, call.numel_out);
  state.signature_chain = mix(state.signature_chain, mine);
  state.site_chain =
      mix(state.site_chain, call.site < InternTable::kSize ? definitions_.site_hash(call.site) : 0);
  __atomic_store_n(&totals.signatures[state.issued % kLastSignatures], mine, __ATOMIC_RELAXED);
  __atomic_store_n(&totals.signature_chain, state.signature_chain, __ATOMIC_RELAXED);
  __atomic_store_n(&totals.site_chain, state.site_chain, __ATOMIC_RELAXED);
  if ((state.issued + 1) % kDigestBlock != 0)
    return;
  FileHeader& header = *file_.header;
  const std::uint64_t index = __atomic_fetch_add(&header.digests_used, 1, __ATOMIC_RELAXED);
  if (index >= header.digests_capacity) {
    drop(&FileHeader::dropped_digests);
    return;
  }
  DigestEntry& digest = reinterpret_cast<DigestEntry*>(file_.base + header.digests_offset)[index];
  digest.group = group;
  digest.block = static_cast<std::uint32_t>(state.issued / kDigestBlock);
  digest.signature = state.signature_chain;
  digest.site = state.site_chain;
  __atomic_store_n(&digest.commit, index + 1, __ATOMIC_RELEASE);
}

inline void Writer::returned(const Ticket& ticket, bool threw) noexcept {
  if (live(ticket) && set_stamp(ticket, &Slot::returned, stamp_now(ticket, threw)))
    leave(ticket);
}

inline void Writer::completed(const Ticket& ticket, bool failed) noexcept {
  if (live(ticket))
    set_stamp(ticket, &Slot::completed, stamp_now(ticket, failed));
}

inline void Writer::returned_completed(const Ticket& ticket, bool failed) noexcept {
  if (!live(ticket))
    return;
  const std::uint64_t now = stamp_now(ticket, failed);
  set_stamp(ticket, &Slot::completed, now);
  if (set_stamp(ticket, &Slot::returned, now))
    leave(ticket);
}

inline void Writer::returned_untold(const Ticket& ticket) noexcept {
  if (live(ticket))
    set_stamp(ticket, &Slot::completed, stamp_never_told(ticket.lap));
  returned(ticket);
}

// --- Small parts
// --------------------------------------------------------------------------------------------

/// Counter of one channel (group, direction, peer, tag), or null when the table is full.
inline Writer::Channel* Writer::channel_of(std::uint32_t group, Op op, std::int32_t peer,
                                           std::int32_t tag, std::uint32_t& number) noexcept {
  const std::uint64_t direction = op == Op::kSend ? 1 : op == Op::kRecv ? 2 : 3;
  // From a start of many bits: small numbers alone meet ("to 1" and "from 2").
  const std::uint64_t start = mix(0x6368616e6e656cULL, std::uint64_t{group} << 2 | direction);
  const std::uint64_t key =
      mix(mix(start, static_cast<std::uint32_t>(peer)), static_cast<std::uint32_t>(tag)) | 1;
  for (std::uint32_t i = 0; i < 64; ++i) {
    const auto at = static_cast<std::uint32_t>((key >> 8) + i) % kChannelsMax;
    std::uint64_t have = __atomic_load_n(&volatile_->channels[at].key, __ATOMIC_ACQUIRE);
    if (have == key ||
        (have == 0 && (__atomic_compare_exchange_n(&volatile_->channels[at].key, &have, key, false,
                                                   __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE) ||
                       have == key))) {
      number = at + 1;
      return &volatile_->channels[at];
    }
  }
  drop(&FileHeader::dropped_channels);
  return nullptr;
}

/// Counts who is inside a call: number of calls << 48 | sum of the threads' hashes. If all calls
/// inside are this thread's own, the sum is a multiple of its hash; else calls of two threads
/// overlap.
inline std::uint64_t Writer::inside_one(std::uint32_t thread) noexcept {
  return 1ULL << 48 | (mix(0x7468726561ULL, thread) & 0xffffffffU);
}

inline bool Writer::enter(std::uint64_t& inside, std::uint32_t thread) noexcept {
  const std::uint64_t one = inside_one(thread);
  const std::uint64_t before = __atomic_fetch_add(&inside, one, __ATOMIC_ACQ_REL);
  return before != (before >> 48) * one;
}

inline void Writer::leave(const Ticket& ticket) noexcept {
  if (ticket.point_to_point && ticket.channel == 0)
    return;
  std::uint64_t& inside = ticket.point_to_point ? volatile_->channels[ticket.channel - 1].inside
                                                : volatile_->groups[ticket.group].inside;
  __atomic_fetch_sub(&inside, inside_one(ticket.thread), __ATOMIC_ACQ_REL);
}

inline std::uint32_t Writer::thread_id() const noexcept {
  struct Cached {
    std::uint32_t epoch;
    std::uint32_t tid;
  };
  static thread_local Cached cached{};
  if (cached.epoch != epoch_)
    cached = Cached{epoch_, static_cast<std::uint32_t>(syscall(SYS_gettid))};
  return cached.tid;
}

inline void Writer::drop(std::uint64_t FileHeader::*counter) noexcept {
  __atomic_fetch_add(&(file_.header->*counter), 1, __ATOMIC_RELAXED);
}

inline void Writer::lock(std::uint32_t& word) noexcept {
  for (std::uint32_t n = 0; __atomic_exchange_n(&word, 1U, __ATOMIC_ACQUIRE) != 0; ++n) {
    if (n < 64)
      continue;
    sched_yield();  // The holder may have been preempted.
  }
}

}  // namespace lockstep::history

#pragma GCC visibility pop
