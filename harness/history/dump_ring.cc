#include "harness/history/dump_ring.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <set>

namespace lockstep::history {
namespace {

constexpr std::size_t kPointToPointMax = 256;

struct OpName {
  std::string_view name{};
  Op op{};
};

constexpr std::array kOps{
    OpName{"all_reduce", Op::kAllReduce},
    OpName{"allreduce", Op::kAllReduce},
    OpName{"all_reduce_sparse", Op::kAllReduce},
    OpName{"allreduce_coalesced", Op::kAllReduceCoalesced},
    OpName{"broadcast", Op::kBroadcast},
    OpName{"_broadcast_oop", Op::kBroadcast},
    OpName{"reduce", Op::kReduce},
    OpName{"_reduce_oop", Op::kReduce},
    OpName{"all_gather", Op::kAllGather},
    OpName{"_all_gather_base", Op::kAllGatherSingle},
    OpName{"_allgather_base", Op::kAllGatherSingle},
    OpName{"all_gather_into_tensor_coalesced", Op::kAllGatherCoalesced},
    OpName{"ALLGATHER_coalesced", Op::kAllGatherCoalesced},
    OpName{"reduce_scatter", Op::kReduceScatter},
    OpName{"_reduce_scatter_base", Op::kReduceScatterSingle},
    OpName{"reduce_scatter_tensor_coalesced", Op::kReduceScatterCoalesced},
    OpName{"REDUCE_SCATTER_coalesced", Op::kReduceScatterCoalesced},
    OpName{"gather", Op::kGather},
    OpName{"scatter", Op::kScatter},
    OpName{"all_to_all", Op::kAllToAll},
    OpName{"alltoall", Op::kAllToAll},
    OpName{"alltoall_base", Op::kAllToAllSingle},
    OpName{"barrier", Op::kBarrier},
    OpName{"all_reduce_barrier", Op::kBarrier},
    OpName{"send", Op::kSend},
    OpName{"recv", Op::kRecv},
};

std::uint64_t mix(std::uint64_t a, std::uint64_t b) {
  std::uint64_t x = (a ^ (b + 0x9E3779B97F4A7C15ULL + (a << 6) + (a >> 2))) * 0xBF58476D1CE4E5B9ULL;
  return x ^ (x >> 29);
}

/// What must be alike on all members, whichever it is for that operation. The rest (who has the
/// list, how it is split) is only compared where calls are kept.
std::uint64_t signature(const Collective& call, std::string_view unknown_name) {
  std::uint64_t size = 0;
  Op op = call.op;
  switch (op) {
    case Op::kAllReduce:
    case Op::kAllReduceCoalesced:
    case Op::kBroadcast:
    case Op::kReduce:
      size = std::max(call.numel_in, call.numel_out);
      break;
    case Op::kAllGather:
    case Op::kAllGatherSingle:
      op = Op::kAllGather;
      size = call.numel_out;
      break;
    case Op::kAllGatherCoalesced:
      size = call.numel_out;
      break;
    case Op::kReduceScatter:
    case Op::kReduceScatterSingle:
      op = Op::kReduceScatter;
      size = call.numel_in;
      break;
    case Op::kReduceScatterCoalesced:
      size = call.numel_in;
      break;
    case Op::kAllToAllSingle:
      op = Op::kAllToAll;
      break;
    case Op::kUnknown:
      size = std::hash<std::string_view>{}(unknown_name);
      break;
    default:
      break;
  }
  const bool typed = call.dtype != DType::kNone && call.dtype != DType::kOther &&
                     call.dtype != DType::kMixed && op != Op::kBarrier;
  return mix(mix(static_cast<std::uint64_t>(op), size),
             typed ? static_cast<std::uint64_t>(call.dtype) : 0);
}

/// Whoever waits long enough is given up: that is not done. Recorders of backends without events
/// take a call out when it is done (Gloo), or as soon as it is issued.
bool is_done(const DumpEntry& entry, std::string_view backend) {
  const bool has_events = backend.substr(0, 4) == "nccl" || backend == "xccl";
  return entry.state == DumpEntry::State::kCompleted || entry.completed_ns > 0 ||
         (entry.retired && !has_events);
}

/// Messages, with those that have completed now: the last of each peer and direction stays.
void complete(std::vector<Collective>& messages, const Collective& call, bool is_batch) {
  std::vector<Collective> done;
  std::erase_if(messages, [&](const Collective& open) {
    const bool now = is_batch ? open.seq == call.seq && !open.completed_ns
                              : open.op == call.op && open.root == call.root;
    if (now && is_batch) {
      done.push_back(open);
      done.back().returned_ns = call.returned_ns;
      done.back().completed_ns = call.completed_ns;
    }
    return now;
  });
  if (!is_batch && is_point_to_point(call.op))
    done.push_back(call);
  std::erase_if(messages, [&](const Collective& old) {
    return old.completed_ns && std::any_of(done.begin(), done.end(), [&](const Collective& one) {
             return one.op == old.op && one.root == old.root;
           });
  });
  messages.insert(messages.end(), done.begin(), done.end());
}

bool is_backward(std::uint64_t seq, const RingGroup& group) {
  return group.first_seq != group.end_seq && seq + 1 < group.end_seq;
}

}  // namespace

const DumpRing::Name& DumpRing::name_of_call(std::string_view text) {
  const auto [at, is_new] = names_.try_emplace(text.data());
  Name& name = at->second;
  if (!is_new)
    return name;
  const std::size_t colon = text.find(':');
  if (colon != std::string_view::npos) {
    name.backend = text.substr(0, colon);
    text.remove_prefix(colon + 1);
  }
  const std::string_view word = text.substr(0, text.find(' '));
  const auto* const known =
      std::find_if(kOps.begin(), kOps.end(), [&](const OpName& op) { return op.name == word; });
  name.op_name = word;
  name.op = known == kOps.end() ? Op::kUnknown : known->op;
  name.coalesced = word == "coalesced";
  // "send 0->3", "recv 3<-0", "recv 3<-?": the other is behind the arrow.
  const std::size_t arrow = text.find_first_of("<-", word.size());
  if (arrow != std::string_view::npos && arrow + 2 <= text.size()) {
    const std::string_view peer = text.substr(arrow + 2);
    std::from_chars(peer.data(), peer.data() + peer.size(), name.peer);
  }
  if (name.op == Op::kRecv && name.peer < 0)
    name.op = Op::kRecvAny;
  return name;
}

RingGroup& DumpRing::group_of(const DumpEntry& entry, const Name& name) {
  for (RingGroup& group : groups_) {
    if (group.name == entry.group && group.backend == name.backend)
      return group;
  }
  RingGroup& group = groups_.emplace_back();
  group.name = entry.group;
  group.description = entry.description;
  group.backend = name.backend;
  group.id = entry.group_id;
  return group;
}

Collective DumpRing::call_of(const RingGroup& group, const DumpEntry& entry, const Name& name) {
  Collective call;
  call.record = entry.record < 0 ? entries_ : static_cast<std::uint64_t>(entry.record);
  call.group = static_cast<std::uint32_t>(&group - groups_.data());
  call.op = name.op;
  call.dtype = entry.dtype;
  call.async = true;
  call.root = name.peer;
  call.numel_in = entry.numel_in;
  call.numel_out = entry.numel_out;
  call.counts_hash = entry.counts_hash;
  call.timeout_ms = entry.timeout_ms;
  call.issued_ns = static_cast<std::uint64_t>(std::max<std::int64_t>(entry.created_ns, 0));
  if (entry.state != DumpEntry::State::kScheduled || entry.started_ns > 0)
    call.returned_ns =
        std::max(call.issued_ns + 1,
                 static_cast<std::uint64_t>(std::max<std::int64_t>(entry.started_ns, 0)));
  if (is_done(entry, name.backend))
    call.completed_ns = std::max(
        call.issued_ns, static_cast<std::uint64_t>(std::max<std::int64_t>(entry.completed_ns, 0)));
  else
    call.failed = entry.retired;
  return call;
}

std::uint32_t DumpRing::site_of(DumpValue list, const DumpWords& words) {
  constexpr std::size_t kSitesMax = 1U << 16;
  const std::uint64_t shared = words.key_of_frames(list);
  if (const auto known = shared_sites_.find(shared); shared != 0 && known != shared_sites_.end())
    return known->second;
  const std::vector<DumpFrame> frames = words.frames(list);
  std::vector<std::pair<const char*, std::int64_t>> key;
  for (const DumpFrame& frame : frames)
    key.emplace_back(frame.file.data(), frame.line);
  if (key.empty() || sites_.size() >= kSitesMax)
    return 0;
  const auto [at, is_new] =
      site_ids_.try_emplace(std::move(key), static_cast<std::uint32_t>(sites_.size()));
  if (shared != 0)
    shared_sites_[shared] = at->second;
  if (!is_new)
    return at->second;
  CallSite& site = sites_.emplace_back();
  for (const DumpFrame& frame : frames) {
    Frame& into = site.frames.emplace_back();
    into.module = into.file = frame.file;
    into.function = frame.function;
    into.line = static_cast<std::int32_t>(std::clamp<std::int64_t>(frame.line, 0, 1 << 30));
    into.offset = static_cast<std::uint64_t>(into.line);
  }
  return at->second;
}

void DumpRing::add_collective(RingGroup& group, const DumpEntry& entry, const Name& name,
                              const DumpWords& words) {
  const auto seq = static_cast<std::uint64_t>(entry.seq);
  if (is_backward(seq, group))  // Numbers of a group ascend.
    return;
  Collective call = call_of(group, entry, name);
  call.seq = seq;
  // One number for all calls that were issued as one; the last entry says how it went.
  const bool same_number = group.first_seq != group.end_seq && seq + 1 == group.end_seq;
  if (group.first_seq == group.end_seq)
    group.first_seq = seq;
  group.end_seq = seq + 1;
  if (!same_number)
    group.digests.emplace_back(seq, 0);
  group.digests.back().second += mix(seq, signature(call, name.op_name));
  if (call.completed_ns) {
    group.done_before = seq + 1;
    group.first_open.reset();
  } else if (!group.first_open) {
    group.first_open = seq;
    group.first_open_call = call;
    group.first_open_call.site = site_of(entry.frames, words);
  }
  if (same_number && !group.kept.empty() && group.kept.back().seq == seq) {
    Collective& whole = group.kept.back();
    const bool is_end = name.coalesced;
    if (!is_end && whole.op != call.op)
      whole.op = Op::kUnknown;
    if (!is_end) {
      whole.numel_in += call.numel_in;
      whole.numel_out += call.numel_out;
    }
    whole.completed_ns = call.completed_ns;
    whole.returned_ns = call.returned_ns;
    whole.failed = call.failed;
    return;
  }
  call.site = site_of(entry.frames, words);
  group.kept.push_back(call);
  if (group.kept.size() <= kLast)
    return;
  const Collective oldest = group.kept.front();
  group.kept.pop_front();
  const auto asked = wanted_.find(group.key());
  if (asked != wanted_.end() && oldest.seq >= asked->second.first &&
      oldest.seq < asked->second.second)
    group.asked.push_back(oldest);
}

void DumpRing::add_point_to_point(RingGroup& group, const DumpEntry& entry, const Name& name,
                                  const DumpWords& words) {
  Collective call = call_of(group, entry, name);
  call.seq = static_cast<std::uint64_t>(std::max<std::int64_t>(entry.p2p_seq, 0));
  call.site = site_of(entry.frames, words);
  // A batch is done when its own entry, which comes last, is; a pair is done in its order.
  if (call.completed_ns)
    return complete(group.point_to_point, call, name.coalesced);
  if (name.coalesced) {
    for (Collective& open : group.point_to_point) {
      if (open.seq == call.seq && !open.completed_ns)
        open.returned_ns = call.returned_ns;
    }
    return;
  }
  if (!is_point_to_point(call.op) || group.point_to_point.size() >= kPointToPointMax)
    return;
  group.point_to_point.push_back(call);
}

void DumpRing::add(const DumpEntry& entry, const DumpWords& words) {
  if (entry.name.empty())
    return;
  const Name& name = name_of_call(entry.name);
  RingGroup& group = group_of(entry, name);
  group.tells_starts |= entry.started_ns > 0 || entry.state == DumpEntry::State::kStarted;
  if (entry.is_p2p || is_point_to_point(name.op))
    add_point_to_point(group, entry, name, words);
  else if (entry.seq >= 0)
    add_collective(group, entry, name, words);
  ++entries_;
}

void DumpRing::finish(const DumpHead& head) {
  // One recorder tells of all groups of a backend.
  std::set<std::string> telling;
  for (const RingGroup& group : groups_) {
    if (group.tells_starts)
      telling.insert(group.backend);
  }
  for (RingGroup& group : groups_)
    group.tells_starts = telling.contains(group.backend);
  for (RingGroup& group : groups_) {
    const auto has_first_open = [&](const auto& calls) {
      return std::any_of(calls.begin(), calls.end(),
                         [&](const Collective& call) { return call.seq == group.first_open; });
    };
    if (group.first_open && !has_first_open(group.asked) && !has_first_open(group.kept))
      group.asked.push_back(group.first_open_call);
    group.kept.insert(group.kept.begin(), group.asked.begin(), group.asked.end());
    group.asked.clear();
    // Of calls that were issued as one the ring may have lost some.
    if (group.first_seq > 1 && group.kept.size() > 1 && group.kept.front().completed_ns &&
        group.kept.front().seq == group.first_seq)
      group.kept.pop_front();
    for (Collective& call : group.kept) {
      if (!call.completed_ns && call.seq < group.done_before) {
        call.completed_ns = call.issued_ns;
        call.failed = false;
      }
      if (!group.tells_starts)
        call.returned_ns = call.issued_ns;
    }
    for (Collective& call : group.point_to_point) {
      if (!group.tells_starts)
        call.returned_ns = call.issued_ns;
    }
    if (!group.digests.empty())  // Nor is all of them there at the end.
      group.digests.pop_back();
    if (group.first_seq > 1 && !group.digests.empty())
      group.digests.erase(group.digests.begin());
  }
  for (const DumpHead::Config& config : head.groups) {
    const bool known = std::any_of(groups_.begin(), groups_.end(),
                                   [&](const auto& group) { return group.name == config.name; });
    if (known || config.name.empty())
      continue;
    RingGroup& group = groups_.emplace_back();
    group.name = config.name;
    group.description = config.description;
  }
}

}  // namespace lockstep::history
