#include "harness/diagnose/call.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <string_view>
#include <utility>

#include "harness/base/library_source.h"

namespace lockstep::diagnose {
namespace {

using os::PythonFrame;
using os::PythonGroup;

bool is_distributed(const PythonFrame& frame) {
  return frame.file.find("/torch/distributed/") != std::string::npos;
}

bool is_of_c10d(const PythonFrame& frame) {
  return frame.file.ends_with("/torch/distributed/distributed_c10d.py");
}

bool is_library(const PythonFrame& frame) {
  return is_library_source(frame.file) || is_python_library(frame.file) || is_distributed(frame);
}

std::optional<std::int32_t> integer(const PythonFrame& frame, std::string_view name) {
  for (const auto& [its, value] : frame.integers) {
    if (its == name)
      return static_cast<std::int32_t>(value);
  }
  return std::nullopt;
}

std::string text(const PythonFrame& frame, std::string_view name) {
  for (const auto& [its, value] : frame.texts) {
    if (its == name)
      return value;
  }
  return "";
}

constexpr std::string_view kNoPart = "torch.distributed";

/// What a part of torch.distributed's is known as.
std::string part_of(const PythonFrame& frame) {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 6> kParts{
      {{"/fsdp/", "FSDP"},
       {"/tensor/", "DTensor"},
       {"/checkpoint/", "checkpoint"},
       {"/pipelining/", "pipelining"},
       {"/optim/", "optimizer"},
       {"/nn/", "torch.distributed.nn"}}};
  for (const auto& [part, name] : kParts) {
    if (frame.file.find(part) != std::string::npos)
      return std::string(name);
  }
  return std::string(kNoPart);
}

const PythonGroup* group_of(const PythonFrame& frame, const std::vector<PythonGroup>& groups) {
  const auto at = std::find_if(groups.begin(), groups.end(), [&](const PythonGroup& group) {
    return frame.group != 0 && group.object == frame.group;
  });
  return at == groups.end() ? nullptr : &*at;
}

void take_group(Call& call, const PythonGroup& group, std::int32_t world_size) {
  call.members = group.ranks;
  if (static_cast<std::int32_t>(group.ranks.size()) != world_size)
    call.group = group.name;
}

/// By its number in the world, or else in its group.
std::optional<std::int32_t> peer_of(const PythonFrame& frame, const Call& call, bool sends) {
  if (const auto global = integer(frame, sends ? "dst" : "src"))
    return global;
  const auto local = integer(frame, sends ? "group_dst" : "group_src");
  return local && *local >= 0 && static_cast<std::size_t>(*local) < call.members.size()
             ? std::optional(call.members[static_cast<std::size_t>(*local)])
             : std::nullopt;
}

Call::Kind kind_of(const PythonFrame& frame) {
  const std::string_view name = frame.function;
  if (name == "init_process_group")
    return Call::Kind::kRendezvous;
  if (name == "send" || name == "isend")
    return Call::Kind::kSend;
  if (name == "recv" || name == "irecv")
    return Call::Kind::kRecv;
  if (name.find("new_group") != std::string_view::npos ||
      name.find("new_subgroups") != std::string_view::npos || name == "split_group")
    return Call::Kind::kNewGroup;
  return Call::Kind::kCollective;
}

}  // namespace

std::optional<Call> call_of(const std::vector<PythonFrame>& frames,
                            const std::optional<std::vector<PythonGroup>>& groups,
                            std::int32_t world_size) {
  const auto inner = std::find_if(frames.begin(), frames.end(), [](const PythonFrame& frame) {
    return is_distributed(frame) || !is_library(frame);
  });
  if (inner == frames.end() || !is_distributed(*inner))
    return std::nullopt;
  const auto user =
      std::find_if(inner, frames.end(), [](const PythonFrame& f) { return !is_library(f); });
  const PythonFrame* named = nullptr;  // The outermost one: what the program has called.
  for (auto frame = inner; frame != user; ++frame) {
    if (is_of_c10d(*frame))
      named = &*frame;
  }
  Call call;
  if (named != nullptr) {
    call.kind = kind_of(*named);
    call.op = named->function;
    if (call.kind == Call::Kind::kRendezvous) {
      call.rank = integer(*named, "rank");
      call.world_size = integer(*named, "world_size");
    }
  } else {
    call.op = part_of(*inner);
    call.detail = inner->function;
  }
  for (auto frame = inner; frame != user; ++frame) {
    if (named != nullptr && call.part.empty() && is_distributed(*frame) &&
        part_of(*frame) != kNoPart)
      call.part = part_of(*frame);
    if (call.detail.empty() && call.kind == Call::Kind::kNewGroup)
      call.detail = text(*frame, "group_name");
    if (const auto* group = groups ? group_of(*frame, *groups) : nullptr;
        group != nullptr && call.members.empty() && call.kind != Call::Kind::kNewGroup)
      take_group(call, *group, world_size);
  }
  if (call.kind == Call::Kind::kSend || call.kind == Call::Kind::kRecv)
    call.peer = peer_of(*named, call, call.kind == Call::Kind::kSend);
  return call;
}

std::string in_words(const Call& call) {
  std::string words = call.op;
  if (call.kind == Call::Kind::kNewGroup && !call.detail.empty())
    words += fmt::format(" (name '{}')", call.detail);
  else if (!call.detail.empty())
    words += fmt::format("'s {}", call.detail);
  if (call.kind == Call::Kind::kSend || call.kind == Call::Kind::kRecv)
    words += fmt::format(" {} {}", call.kind == Call::Kind::kSend ? "to" : "from",
                         call.peer ? fmt::format("rank {}", *call.peer) : "any rank");
  if (!call.part.empty())
    words += " of " + call.part;
  if (!call.group.empty())
    words += fmt::format(" of group {}", call.group);
  return words;
}

}  // namespace lockstep::diagnose
