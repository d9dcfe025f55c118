#include "harness/model/matching.h"

#include <fmt/format.h>

#include <algorithm>

namespace lockstep {
namespace {

using history::DType;
using history::Op;
using history::ReduceOp;

/// Forms of one operation that a backend matches with each other.
Op family_of(Op op) {
  switch (op) {
    case Op::kAllGatherSingle:
      return Op::kAllGather;
    case Op::kReduceScatterSingle:
      return Op::kReduceScatter;
    case Op::kAllToAllSingle:
      return Op::kAllToAll;
    default:
      return op;
  }
}

bool has_root(Op op) {
  return op == Op::kBroadcast || op == Op::kReduce || op == Op::kGather || op == Op::kScatter;
}

bool reduces(Op op) {
  return op == Op::kAllReduce || op == Op::kAllReduceCoalesced || op == Op::kReduce ||
         family_of(op) == Op::kReduceScatter || op == Op::kReduceScatterCoalesced;
}

bool has_tensors(Op op) { return op != Op::kBarrier && op != Op::kMonitoredBarrier; }

/// In place or not, this is the number of elements the operation is about.
std::uint64_t extent(const Collective& c) { return std::max(c.numel_in, c.numel_out); }

bool sizes_differ(const Collective& a, const Collective& b) {
  switch (family_of(a.op)) {
    case Op::kAllReduce:
    case Op::kBroadcast:
    case Op::kReduce:
      return extent(a) != extent(b);
    case Op::kAllReduceCoalesced:
      return extent(a) != extent(b) || a.counts_hash != b.counts_hash;
    case Op::kAllGather:  // Members may hand in different sizes; what they receive is alike.
    case Op::kAllGatherCoalesced:
      return a.numel_out != b.numel_out ||
             (a.op == Op::kAllGatherSingle && b.op == a.op && a.numel_in != b.numel_in);
    case Op::kReduceScatter:
    case Op::kReduceScatterCoalesced:
      return a.numel_in != b.numel_in;
    default:  // Lists on the root only, or splits that differ pair by pair: see sums_disagree.
      return false;
  }
}

bool known(DType dtype) {
  return dtype != DType::kNone && dtype != DType::kOther && dtype != DType::kMixed;
}
bool known(ReduceOp op) { return op != ReduceOp::kNone && op != ReduceOp::kOther; }

}  // namespace

std::vector<Code> differences(const Collective& a, const Collective& b) {
  if (a.op == Op::kUnknown || b.op == Op::kUnknown)
    return {};
  if (family_of(a.op) != family_of(b.op))
    return {Code::kDifferentOp};
  std::vector<Code> codes;
  if (has_tensors(a.op) && sizes_differ(a, b))
    codes.push_back(Code::kDifferentSize);
  if (has_tensors(a.op) && known(a.dtype) && known(b.dtype) && a.dtype != b.dtype)
    codes.push_back(Code::kDifferentDtype);
  if (reduces(a.op) && known(a.reduce_op) && known(b.reduce_op) && a.reduce_op != b.reduce_op)
    codes.push_back(Code::kDifferentReduction);
  if (has_root(a.op) && a.root >= 0 && b.root >= 0 && a.root != b.root)
    codes.push_back(Code::kDifferentRoot);
  return codes;
}

bool agree(const Collective& a, const Collective& b) {
  // The common case first: the same call in every word.
  if (a.op == b.op && a.dtype == b.dtype && a.reduce_op == b.reduce_op && a.root == b.root &&
      a.numel_in == b.numel_in && a.numel_out == b.numel_out && a.counts_hash == b.counts_hash)
    return true;
  return differences(a, b).empty();
}

bool sums_disagree(const std::vector<const Collective*>& calls, std::int32_t group_size) {
  if (calls.empty() || calls.size() != static_cast<std::size_t>(group_size))
    return false;
  std::uint64_t in = 0;
  std::uint64_t out = 0;
  std::uint64_t out_max = 0;
  std::uint64_t in_max = 0;
  for (const Collective* call : calls) {
    in += call->numel_in;
    out += call->numel_out;
    in_max = std::max(in_max, call->numel_in);
    out_max = std::max(out_max, call->numel_out);
  }
  switch (family_of(calls.front()->op)) {
    case Op::kAllGather:  // Each receives what all hand in; gather: only the root does.
    case Op::kGather:
      return in != out_max;
    case Op::kReduceScatter:
    case Op::kScatter:
      return in_max != out;
    case Op::kAllToAll:
      return in != out;
    default:
      return false;
  }
}

std::string describe(const Collective& call) {
  std::string text(history::name_of(call.op));
  if (has_tensors(call.op))
    text += fmt::format(" of {} {}", extent(call), history::name_of(call.dtype));
  if (reduces(call.op) && call.reduce_op != ReduceOp::kNone)
    text += fmt::format(" ({})", history::name_of(call.reduce_op));
  if (has_root(call.op) && call.root >= 0)
    text += fmt::format(" root {}", call.root);
  return text;
}

bool completion_needs_everyone(const Collective& call) {
  if (!call.completed_ns || call.failed)
    return false;
  switch (family_of(call.op)) {
    case Op::kBarrier:
      return true;
    case Op::kAllReduce:
    case Op::kAllReduceCoalesced:
    case Op::kAllGather:
    case Op::kAllGatherCoalesced:
      return extent(call) > 0;
    default:  // A root, or a sender of small messages, may be done before the others have come.
      return false;
  }
}

}  // namespace lockstep
