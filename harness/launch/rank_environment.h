// What a rank is told by its environment when lockstep starts it: the variables that
// torch.distributed's env:// rendezvous reads, as torchrun would set them on one host.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "harness/base/error.h"

namespace lockstep::launch {

/// A TCP port of this host that nobody uses now. Errors: kEnvironment.
Result<std::uint16_t> free_port();

/// RANK, LOCAL_RANK, WORLD_SIZE, LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT.
std::map<std::string, std::string> rank_environment(std::int32_t rank, std::int32_t world_size,
                                                    std::uint16_t port);

}  // namespace lockstep::launch
