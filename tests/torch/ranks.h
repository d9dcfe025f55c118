// Ranks for tests: forked from the test's process (which has one thread), with a Gloo group among
// them.
#pragma once

#include <filesystem>
#include <functional>
#include <stdexcept>
#include <string>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <vector>

namespace lockstep::test {

struct RankContext {
  int rank{};
  int world{};
  std::filesystem::path directory{};  ///< Of the test; the same on all ranks, removed at its end.
  c10::intrusive_ptr<c10d::ProcessGroup> group{};
};

/// Runs `body` on every rank and returns what each returned. A body that throws, or does not come
/// to an end within 30 s, fails the current test and leaves its text empty; nothing is left
/// running. `inspect` sees the directory before it is removed.
std::vector<std::string> run_ranks(
    int world, const std::function<std::string(RankContext&)>& body,
    const std::function<void(const std::filesystem::path&)>& inspect = {});

/// For bodies: GoogleTest's macros do not reach the parent.
inline void require(bool truth, const std::string& what) {
  if (!truth)
    throw std::runtime_error("expected: " + what);
}

}  // namespace lockstep::test
