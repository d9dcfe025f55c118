// The call of torch.distributed's that a thread is in, from its Python frames and what their
// variables hold.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "harness/base/rank_set.h"
#include "harness/os/python_frames.h"

namespace lockstep::diagnose {

struct Call {
  enum class Kind : std::uint8_t { kCollective, kSend, kRecv, kNewGroup, kRendezvous };
  Kind kind{};
  std::string op{};      ///< "all_reduce", by the name that the program calls it; "FSDP".
  std::string detail{};  ///< The function inside of that that waits; a key; empty: none.
  std::string part{};    ///< Of torch.distributed's, that has called it for the program: "FSDP".
  std::string group{};   ///< Empty: it is of all ranks, or not told.
  std::vector<std::int32_t> members{};  ///< Of the group, global ranks; empty: not told.
  std::optional<std::int32_t> peer{};   ///< Of a message: the other rank.
  std::optional<std::int32_t> rank{}, world_size{};  ///< Of init_process_group.
};

/// None where the thread is in no such call, or in code of the program's that one has called.
std::optional<Call> call_of(const std::vector<os::PythonFrame>& frames,
                            const std::optional<std::vector<os::PythonGroup>>& groups,
                            std::int32_t world_size);

/// "all_reduce of group dp", "recv from rank 2".
std::string in_words(const Call& call);

}  // namespace lockstep::diagnose
