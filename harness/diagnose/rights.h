// Why a process is not ours to look into: what we have, what is needed, and the way out.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "harness/base/error.h"

namespace lockstep::diagnose {

/// What decides whether one process may look into another, as it stands in /proc.
struct Rights {
  std::int32_t pid{};
  std::uint32_t uid{}, our_uid{};
  bool same_namespace{true};  ///< Of users: ours, or one below it.
  bool dumpable{true};
  bool may_trace_any{};               ///< We have CAP_SYS_PTRACE.
  bool has_more{};                    ///< It has capabilities that we have not.
  std::optional<int> ptrace_scope{};  ///< None: the kernel has no Yama.
};

/// None where nothing forbids it.
std::optional<Error> refusal(const Rights& rights);

Rights rights_to(std::int32_t pid);

/// None where its memory can be read.
std::optional<Error> why_refused(std::int32_t pid);

/// kernel.yama.ptrace_scope; none: the kernel has no Yama.
std::optional<int> ptrace_scope();
bool may_trace_any();

}  // namespace lockstep::diagnose
