// What a word of a command is, as far as it matters to who wants to get inside.
#pragma once

#include <optional>
#include <string>

namespace lockstep::entry {

struct Program {
  std::string python{};    ///< The interpreter, if it is one, or a script that names one.
  std::string libtorch{};  ///< The libtorch_cpu.so that it is linked to.
  std::string obstacle{};  ///< Why nothing can be preloaded into it.
  /// Nothing that matters: a launcher, perhaps.
  [[nodiscard]] bool empty() const {
    return python.empty() && libtorch.empty() && obstacle.empty();
  }
};

/// No value: not a program.
std::optional<Program> program_of(const std::string& word);

/// As the shell would.
std::optional<std::string> find_in_path(const std::string& name);

}  // namespace lockstep::entry
