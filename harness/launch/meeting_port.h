// The TCP port of this host that the ranks of a job meet at: MASTER_PORT.
#pragma once

#include <cstdint>

#include "harness/base/error.h"
#include "harness/base/unique_fd.h"

namespace lockstep::launch {

struct MeetingPort {
  std::uint16_t number{};
  /// No other lockstep of this host picks the number while this is open. It is not the port, which
  /// has to be free for rank 0, and takes seconds to get to it.
  UniqueFd claim;
};

/// From first to last, if there are any.
struct PortRange {
  int first{};
  int last{};
};

/// Those that the kernel gives to nobody by itself before rank 0 listens there.
PortRange ports_to_meet_at();

/// One of the range that nobody uses now and no other lockstep has picked; where there is none,
/// one that the kernel gives. Errors: kEnvironment.
Result<MeetingPort> pick_meeting_port(PortRange range = ports_to_meet_at());

}  // namespace lockstep::launch
