// The name of a signal.
#pragma once

#include <cstring>
#include <string>

namespace lockstep {

/// "SIGKILL"; "signal 42" for one without a name.
inline std::string signal_name(int signal) {
  const char* const name = ::sigabbrev_np(signal);
  return name != nullptr ? std::string("SIG") + name : "signal " + std::to_string(signal);
}

}  // namespace lockstep
