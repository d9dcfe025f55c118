// What the lockstep of one host tells those of the others while their job runs: RUN/heads.json, in
// run directories that lie side by side on a file system that all of them see. And what they read
// of its history when they ask for it.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "harness/base/error.h"
#include "harness/history/run.h"
#include "harness/history/run_directory.h"

namespace lockstep::history {

struct Heads {
  std::string directory{};  ///< Of its run; it is in no file.
  std::string host{};
  std::uint64_t beat{};  ///< One more each time: whoever does not count on is not heard of.
  std::string meets_at{};
  std::int32_t world_size{};
  RankSet ranks{};
  RankSet failed{};                      ///< Those of them that failed for a reason of their own.
  std::uint64_t still_ms{};              ///< For so long none of them has moved.
  bool waits{};                          ///< One of them is in a call.
  std::vector<std::string> doing{};      ///< What they do, a line for those that do the same.
  std::vector<std::string> addresses{};  ///< Of the host: "10.9.0.1".
  std::uint64_t question{};              ///< The number of the last one that it asked; 0: none.
  bool again{};                          ///< That asks what was changed since the one before.
  std::map<std::string, std::uint64_t> answered{};  ///< The last question of each, by its name.
  std::string verdict{};                            ///< Why the job can never go on.
  bool ends{};    ///< It says nothing more: the job is over on this host, or is ended.
  bool closed{};  ///< Its run can be read as a whole.

  /// Of its run directory: what tells it from the others.
  [[nodiscard]] std::string name() const;
};

/// Errors: kIo.
Result<void> write_heads(const Heads& heads);

/// Those in the directories beside this one, by name.
std::vector<Heads> heads_beside(const std::string& run_directory);

/// Ranks of one world, which meet at one place; no rank is on both.
bool are_of_one_job(const Heads& one, const Heads& other);

/// Lets others read what there is now of a run that goes on: the last calls of each process, whose
/// files may lie where only this host sees them. Errors: kIo.
Result<void> write_snapshot(const RunDirectory& run);

/// That of the run in this directory, with its journal; Run::live is set. Errors: those of
/// open_run.
Result<Run> read_snapshot(const std::string& run_directory);

void remove_snapshot(const std::string& run_directory);

}  // namespace lockstep::history
