// What a process began, as its own history tells: groups, calls, processes, threads, open files.
// Part of a Run (run.h).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "harness/base/rank_set.h"
#include "harness/history/vocabulary.h"

namespace lockstep {

/// A group that a process began to create after its first one: what came of it is not said.
struct Creation {
  std::string name{};
  std::uint64_t store{};  ///< Equal where members of one name can meet; 0 = not known.
  std::int32_t size{};
  std::int32_t my_rank{};     ///< Rank of this process in the group.
  std::vector<Rank> ranks{};  ///< Global ranks by group rank; empty = not known, or all.
  std::uint32_t site{};       ///< Index into Process::sites; 0 = not recorded.
  std::uint64_t at_ns{};
};

/// Calls that a program made and PyTorch did not pass on, up to when their world was left.
struct SetAside {
  std::string op{};
  std::uint32_t calls{};
  std::uint64_t at_ns{};
};

/// Something that a process was about to begin, as its interpreter told.
struct Begun {
  history::Begins what{};
  std::uint64_t at_ns{};
  std::uint32_t site{};   ///< Index into Process::sites; 0 = not recorded.
  std::uint32_t count{};  ///< Which of those from this site, from 1.
  bool last_told{};       ///< From then on those from this site (0: from any) are not told.
  std::string path{};     ///< Of a file.
};

}  // namespace lockstep
