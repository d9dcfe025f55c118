#include "harness/model/matching.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "harness/history/op_traits.h"

namespace lockstep {
namespace {

using history::Alike;
using history::DType;
using history::OpTraits;
using history::ReduceOp;
using history::Sums;
using history::traits_of;
using history::WaitsFor;

/// In place or not, this is the number of elements the operation is about.
std::uint64_t extent(const Collective& c) { return std::max(c.numel_in, c.numel_out); }

bool sizes_differ(const Collective& a, const Collective& b) {
  switch (traits_of(a.op).alike) {
    case Alike::kExtent:
      return extent(a) != extent(b);
    case Alike::kExtentAndCounts:
      return extent(a) != extent(b) || a.counts_hash != b.counts_hash;
    case Alike::kOut:
      return a.numel_out != b.numel_out;
    case Alike::kOutAndIn:
      return a.numel_out != b.numel_out || (b.op == a.op && a.numel_in != b.numel_in);
    case Alike::kIn:
      return a.numel_in != b.numel_in;
    case Alike::kNone:
      break;
  }
  return false;
}

bool known(DType dtype) {
  return dtype != DType::kNone && dtype != DType::kOther && dtype != DType::kMixed;
}
bool known(ReduceOp op) { return op != ReduceOp::kNone && op != ReduceOp::kOther; }

std::uint64_t bytes_of(DType dtype) {
  constexpr std::uint64_t kBytes[] = {0, 1, 1, 2, 4, 8, 2, 2, 4, 8, 1, 8, 16, 0, 0};
  static_assert(std::size(kBytes) == static_cast<std::size_t>(DType::kCount));
  return dtype < DType::kCount ? kBytes[static_cast<std::size_t>(dtype)] : 0;
}

/// One is of bytes, and the other of something else.
bool is_sent_as_bytes(const Collective& a, const Collective& b) {
  return a.dtype != b.dtype && known(a.dtype) && known(b.dtype) &&
         (a.dtype == DType::kUInt8 || b.dtype == DType::kUInt8) && !traits_of(a.op).reduces;
}

Collective in_bytes(Collective call) {
  call.numel_in *= bytes_of(call.dtype);
  call.numel_out *= bytes_of(call.dtype);
  call.dtype = DType::kUInt8;
  return call;
}

bool same_bytes(const Collective& a, const Collective& b) {
  if (!is_sent_as_bytes(a, b))
    return false;
  if (a.op == history::Op::kSend)
    return extent(in_bytes(a)) == extent(in_bytes(b));
  return traits_of(a.op).alike != Alike::kNone && !sizes_differ(in_bytes(a), in_bytes(b));
}

}  // namespace

std::pair<Collective, Collective> in_like_terms(const Collective& a, const Collective& b) {
  return same_bytes(a, b) ? std::pair(in_bytes(a), in_bytes(b)) : std::pair(a, b);
}

std::vector<Code> differences(const Collective& a, const Collective& b) {
  const OpTraits& traits = traits_of(a.op);
  if (a.op == history::Op::kUnknown || b.op == history::Op::kUnknown)
    return {};
  if (traits.family != traits_of(b.op).family)
    return {Code::kDifferentOp};
  std::vector<Code> codes;
  const bool as_bytes = same_bytes(a, b);
  if (traits.has_tensors && !as_bytes && sizes_differ(a, b))
    codes.push_back(Code::kDifferentSize);
  if (traits.has_tensors && !as_bytes && known(a.dtype) && known(b.dtype) && a.dtype != b.dtype)
    codes.push_back(Code::kDifferentDtype);
  if (traits.reduces && known(a.reduce_op) && known(b.reduce_op) && a.reduce_op != b.reduce_op)
    codes.push_back(Code::kDifferentReduction);
  if (traits.rooted && a.root >= 0 && b.root >= 0 && a.root != b.root)
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
  if (calls.empty() || calls.size() != static_cast<std::size_t>(group_size) ||
      std::any_of(calls.begin(), calls.end(),
                  [&](const Collective* call) { return is_sent_as_bytes(*calls.front(), *call); }))
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
  switch (traits_of(calls.front()->op).sums) {
    case Sums::kInIsEachOut:
      return in != out_max;
    case Sums::kOutIsEachIn:
      return in_max != out;
    case Sums::kInIsOut:
      return in != out;
    case Sums::kNone:
      break;
  }
  return false;
}

std::string describe(const Collective& call) {
  std::string text(history::name_of(call.op));
  if (traits_of(call.op).has_tensors)
    text += fmt::format(" of {} {}", extent(call), history::name_of(call.dtype));
  if (traits_of(call.op).reduces && call.reduce_op != ReduceOp::kNone)
    text += fmt::format(" ({})", history::name_of(call.reduce_op));
  if (traits_of(call.op).rooted && call.root >= 0)
    text += fmt::format(" root {}", call.root);
  return text;
}

bool completion_needs_everyone(const Collective& call) {
  const WaitsFor whom = traits_of(call.op).waits_for;
  return call.completed_ns && !call.failed &&
         (whom == WaitsFor::kAll || (whom == WaitsFor::kAllIfAnything && extent(call) > 0));
}

}  // namespace lockstep
