// What a run is to be: RUN/run.json.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace lockstep {

/// What was meant to happen, written by the supervisor before the first process starts
/// (RUN/run.json).
struct Plan {
  std::string id{};                       ///< Of the run.
  std::uint64_t begun_ns{};               ///< When it was asked for; 0 = not known.
  std::uint64_t written_ns{}, wall_ns{};  ///< The same moment by both clocks; 0 = not known.
  std::vector<std::string> command{};
  std::int32_t world_size{};
  std::string scenario{}, implementation{}, dtype{}, device{}, mutant{};  ///< Empty for `run`.
  std::uint64_t seed{};
  std::map<std::string, std::string> options{};
  std::map<std::string, std::string> contract{};  ///< As declared by the host's `hello`.
  std::vector<std::string> cases{};  ///< Of a suite: ids in the order in which they run.
  std::string case_id{};
  std::vector<std::int64_t> batches{};  ///< By rank, how many its loader has; empty = not said.
  std::vector<std::string> expected_marks{};
  std::vector<std::string> required_checks{};  ///< Checkers that must decide.
  std::string expected_site{};  ///< Of a mutant: "file:line" that its finding must name.
  bool required{true};          ///< Whether an undecided case counts for the exit status.
  std::map<std::string, std::string> versions{};
  /// Per parameter in registration order: name and numel; what the model has, so that "outside
  /// every bucket" is countable.
  std::vector<std::pair<std::string, std::int64_t>> parameters{};

  /// The contract's word on `what`; empty: none.
  [[nodiscard]] std::string declared(const std::string& what) const {
    const auto at = contract.find(what);
    return at == contract.end() ? "" : at->second;
  }
};

}  // namespace lockstep
