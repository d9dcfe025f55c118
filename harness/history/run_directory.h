// The directory of one run, or of one case of a suite: where everything about it lies, from its
// creation to `lockstep check`.
//
//   RUN/run.json          what was meant to happen (Plan)
//   RUN/history/          lockstep.jsonl (the supervisor) and one .lsh per recorded process
//   RUN/tensors/ stacks/  observed values, raw samples
//   RUN/logs/<rank>.out|err
//   RUN/symbols.json      call sites resolved when the run was closed
//   RUN/report.json|txt
//   RUN/cases/<case id>/  of the same form
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "harness/base/error.h"
#include "harness/base/unique_fd.h"
#include "harness/history/run.h"

namespace lockstep::history {

struct RunOptions {
  std::string run_dir{};                 ///< Exactly this one, new or empty; empty = <home>/<id>.
  std::string home{".lockstep"};         ///< Where runs without a name of their own are kept ...
  std::size_t keep{20};                  ///< ... and how many of them, this one included.
  std::string shm{"/dev/shm"};           ///< Where live files go if it is tmpfs with ample room.
  std::uint64_t live_bytes{512U << 20};  ///< What the processes may write: 64 MiB for each.
};

class RunDirectory {
 public:
  /// Errors: kUsage (run_dir is not empty), kEnvironment (read-only, full, no local place for live
  /// files); nothing is left behind then.
  static Result<RunDirectory> create(const RunOptions& options);
  /// That of a suite which another process has created and keeps open, to create cases in it:
  /// `path`, `id` and `cases_live_in` are those of its own.
  static RunDirectory of_suite(std::string path, std::string id, std::string cases_live_in);
  /// `cases/<case id>/` of this run.
  Result<RunDirectory> create_case(const std::string& case_id) const;

  RunDirectory(RunDirectory&&) noexcept = default;
  RunDirectory& operator=(RunDirectory&&) noexcept = default;
  /// Closes what was not closed, so that nothing stays in tmpfs.
  ~RunDirectory();

  [[nodiscard]] const std::string& id() const { return id_; }
  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] std::string journal() const { return path_ + "/history/lockstep.jsonl"; }
  [[nodiscard]] std::string history() const { return path_ + "/history"; }
  [[nodiscard]] std::string tensors() const { return path_ + "/tensors"; }
  [[nodiscard]] std::string stacks() const { return path_ + "/stacks"; }
  [[nodiscard]] std::string log(Rank rank,
                                std::string_view stream) const;  ///< stream: "out" or "err".
  [[nodiscard]] std::string report_json() const { return path_ + "/report.json"; }
  [[nodiscard]] std::string report_txt() const { return path_ + "/report.txt"; }
  /// Where the processes write their .lsh files while they run.
  [[nodiscard]] const std::string& live() const { return live_; }
  /// Where those of cases have theirs; empty: in the run itself.
  [[nodiscard]] std::string cases_live_in() const;

  Result<void> write_plan(const Plan& plan) const;
  /// Removes the tensor files (a case that passed needs them no more).
  void drop_tensors() const;
  /// Moves the live files into RUN/history. Errors: kIo; what could not be moved stays where it is
  /// and is still found by open_run.
  Result<void> close();

 private:
  RunDirectory() = default;
  Result<void> make_layout(const RunOptions& options);
  Result<void> choose_live(const RunOptions& options);

  std::string id_, path_, live_, cases_live_in_;
  bool own_live_{};     // live_ is outside of RUN, ours to remove.
  UniqueFd lock_;       // Held while the run is open, so that nobody prunes it.
  UniqueFd live_lock_;  // And so that nobody takes the live files for those of a dead run.
};

/// Reads all of RUN but its reports. Errors: kUsage (not a run directory), kMalformedHistory, kIo.
Result<Run> open_run(const std::string& directory);

/// Ids of the cases of a suite's run, sorted.
std::vector<std::string> case_ids(const std::string& directory);
/// Where the run of a case lies.
std::string case_path(const std::string& directory, const std::string& case_id);

/// Writes RUN/symbols.json: frames with module, offset and what they were resolved to.
Result<void> write_symbols(const std::string& directory, const std::vector<Frame>& frames);
/// Every frame of the run that has a module, for resolving in place: sites, stacks, exceptions.
std::vector<Frame*> frames_of(Run& run);

}  // namespace lockstep::history
