// Whose code a sleeping thread may be in, without stopping it: every object into whose code, behind
// a call, a word of its stack points. A return address is such a word, so an object that is not
// listed is in none of its frames; one that is listed may be there only by chance, or from a call
// that is over.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace lockstep::os {

/// Paths, each once, innermost first. None if the thread runs whenever it is looked at, is gone, or
/// may not be looked at.
std::optional<std::vector<std::string>> modules_on_stack(std::int32_t pid, std::int32_t tid);

}  // namespace lockstep::os
