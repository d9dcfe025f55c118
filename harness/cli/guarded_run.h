// The run directory of a supervised command: named, and its live files saved, if this process dies.
#pragma once

#include <string>
#include <utility>

#include "harness/base/error.h"
#include "harness/history/run_directory.h"
#include "harness/launch/supervisor.h"

namespace lockstep::cli {

struct GuardedRun {
  history::RunDirectory directory;
  launch::CleanupPage::Handle announced, rescued;

  /// `path`: as --run-dir has it; empty: .lockstep/<id>.
  static Result<GuardedRun> create(launch::Supervisor& supervisor, const std::string& path) {
    history::RunOptions where;
    where.run_dir = path;
    Result<history::RunDirectory> directory = history::RunDirectory::create(where);
    if (!directory)
      return directory.error();
    auto announced = supervisor.announce_run(directory->path());
    if (!announced)
      return announced.error();
    auto rescued = supervisor.rescue_at_death(directory->live(), directory->history());
    if (!rescued)
      return rescued.error();
    return GuardedRun{std::move(*directory), std::move(*announced), std::move(*rescued)};
  }
};

}  // namespace lockstep::cli
