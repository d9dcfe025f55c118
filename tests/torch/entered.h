// Runs an unmodified program as ranks with the tap in them, and reads what it wrote.
#pragma once

#include <string>
#include <vector>

#include "harness/history/run.h"

namespace lockstep::test {

struct Entered {
  std::vector<int> statuses{};        ///< By rank; 128 + signal if killed.
  std::string output{};               ///< stdout and stderr, rank after rank.
  std::vector<Process> processes{};   ///< By rank, then by pid; those without a rank last.
  std::vector<std::string> unseen{};  ///< What the .unseen files say.

  /// The one process that calls itself this rank; a test failure if there is not exactly one.
  [[nodiscard]] const Process& of_rank(int rank) const;
};

/// `program`: a file of tests/torch/programs. The ranks are started with RANK and WORLD_SIZE in
/// their environment.
Entered run_entered(const std::string& program, int ranks);

/// The same without the tap.
Entered run_plain(const std::string& program, int ranks);

/// "two_lines.py:9", where the comment `SITE: marker` stands.
std::string marked_line(const std::string& program, const std::string& marker);

}  // namespace lockstep::test
