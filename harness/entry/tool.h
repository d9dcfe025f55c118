// Runs a tool (an interpreter, a compiler, the loader) to its end and takes what it says.
#pragma once

#include <chrono>
#include <string>
#include <vector>

namespace lockstep::entry {

struct ToolResult {
  bool started{};
  int status{-1};        ///< Its exit status; -1 if it was killed, or ran into the limit.
  std::string output{};  ///< stdout and stderr together.
};

/// The program is looked up in PATH; its stdin is empty.
ToolResult run_tool(const std::vector<std::string>& command,
                    std::chrono::seconds limit = std::chrono::seconds(30));

}  // namespace lockstep::entry
