// Asks the user's Python for its torch, and lets two ranks of it meet (probe.py).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "harness/doctor/facts.h"

namespace lockstep::doctor {

/// LOCKSTEP_PYTHON, else python3 of PATH. At most 90 seconds, after which nothing of it is left.
Torch ask_python(const std::vector<std::string>& interfaces);

/// What the probe has said so far; `finished`: it came to its end.
Torch answer_of(std::string_view output, bool finished, const std::vector<std::string>& interfaces);

}  // namespace lockstep::doctor
