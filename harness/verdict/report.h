// The report of a run or suite as a value: what report/ renders as text, JSON and JUnit.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "harness/verdict/verdict.h"

namespace lockstep {

struct RankStatus {
  Rank rank{};
  std::int32_t pid{};
  std::string host{};
  std::optional<std::int32_t> exited{};
  std::optional<std::int32_t> signaled{};
};

/// One of several worlds of a run: ranks that belong together.
struct WorldReport {
  std::string name{};  ///< "phase 1 of 2".
  std::int32_t world_size{};
  Outcome outcome{Outcome::kUndecided};
  std::vector<RankStatus> ranks{};
};

/// What became of a mutant: a program with one known bug, which the checkers must name.
struct MutantResult {
  std::string name{};
  std::string of{};  ///< The implementation that it is otherwise equal to.
  Code expected{};
  std::vector<Code> got{};
  RankSet expected_culprits{};
  RankSet culprits{};
  bool caught{};
};

struct CaseReport {
  std::string id{};  ///< "buffer-broadcast/ddp/w3/float64/broadcast=on".
  std::string scenario{}, implementation{}, subject{"builtin"}, dtype{}, device{"cpu"};
  std::int32_t ranks{};
  std::uint64_t seed{};
  Outcome outcome{Outcome::kUndecided};
  std::string reason{};
  std::vector<std::string> marks{};
  std::vector<Measure> measures{};
  std::vector<MutantResult> mutants{};
  std::vector<Verdict>
      checks{};  ///< What each checker said; findings of mutants stay under their case.
  std::vector<Finding>
      findings{};  ///< After judge(): one per divergence. Empty for a mutant that was caught.
  double wall_s{};
  bool required{true};  ///< An undecided required case gives status 2.
  std::string run_directory{};
};

struct Report {
  std::string run{};
  std::vector<std::string> command{};
  Outcome outcome{Outcome::kUndecided};
  std::string reason{};  ///< Why undecided, for statuses 3 and 130.
  std::string unseen{};  ///< Where next to nothing was seen: what there was to judge.
  std::int32_t exit_status{};
  std::optional<std::int32_t> program_exit{};
  std::optional<std::int32_t> world_size{};  ///< None for a suite.
  double wall_s{};
  std::map<std::string, std::string> versions{};
  std::vector<RankStatus> ranks{};    ///< Of the last world.
  std::vector<WorldReport> worlds{};  ///< Empty where there is one only.
  std::vector<Verdict> checks{};
  std::vector<Finding> findings{};
  std::vector<CaseReport> cases{};
};

}  // namespace lockstep
