// The version of lockstep itself, from CMakeLists.txt.
#pragma once

namespace lockstep {
inline constexpr const char* kVersion = LOCKSTEP_VERSION;
}  // namespace lockstep
