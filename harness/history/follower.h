// Follows the history of a job while it runs: a Run that grows. Only good for deciding when to
// stop; what is reported is judged from the closed run.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "harness/history/journal.h"
#include "harness/history/reader.h"
#include "harness/history/run.h"
#include "harness/history/watch_reader.h"

namespace lockstep::history {

class Follower {
 public:
  /// `live_directory` holds the .lsh files (it may be empty yet); `journal` is the journal's path,
  /// or empty. Of each process the last `collectives_max` complete collectives are kept, and all
  /// that are not.
  Follower(std::string live_directory, std::string journal, Plan plan = {},
           std::size_t collectives_max = 16384);

  /// Takes what is new since the last poll. True if anything was.
  bool poll();
  /// Of a job whose size is only learnt while it runs.
  void set_world_size(std::int32_t world_size) { run_.plan.world_size = world_size; }
  /// As of the last poll; Run::live is set. What can not be read yet is not in Run::missing.
  [[nodiscard]] const Run& run() const { return run_; }
  /// How far the process is right now (a fresh look at its counters); none if it has written no
  /// history.
  std::optional<Head> head(std::int32_t pid);

 private:
  struct Watching {
    std::optional<WatchReader> reader{};
    std::shared_ptr<WatchedValues> values{};
  };

  bool find_files();
  bool read_watched(std::size_t i);

  std::string live_directory_, journal_path_;
  std::size_t collectives_max_;
  Run run_;
  std::optional<JournalReader> journal_;
  std::map<std::string, std::size_t> known_;             // File name to index.
  std::vector<std::unique_ptr<ProcessReader>> readers_;  // Beside Run::processes.
  std::vector<Watching> watching_;                       // Likewise.
};

}  // namespace lockstep::history
