// How a sample says that a thread sleeps in a futex that only threads of its own process can wake:
// a lock or a queue of the program, and not one that it shares with another rank.
#pragma once

#include <string_view>

namespace lockstep::history {

inline constexpr std::string_view kOwnFutex = " (private)";  // Behind ThreadState::wchan.

}  // namespace lockstep::history
