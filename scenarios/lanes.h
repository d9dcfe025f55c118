// Cases at a time: each lane is a process of ours that runs one case after another with ranks of
// its own. Most of a case is waiting, and what one lane ends or kills is never another's.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "harness/base/error.h"
#include "harness/base/unique_fd.h"
#include "harness/history/run_directory.h"
#include "harness/launch/supervisor.h"
#include "scenarios/suite.h"

namespace lockstep {

/// A case that a lane has run; its directory is closed.
struct Played {
  std::size_t lane{}, index{};
  std::uint64_t took_ns{};
};

class Lanes {
 public:
  explicit Lanes(launch::Supervisor& supervisor) : supervisor_(supervisor) {}
  ~Lanes();  // Interrupts those that still run a case, and waits for all.
  Lanes(const Lanes&) = delete;
  Lanes& operator=(const Lanes&) = delete;

  /// As many as the options say, of their lane_command. Errors: kEnvironment.
  Result<void> start(const SuiteOptions& options, const history::RunDirectory& suite);
  [[nodiscard]] std::size_t count() const { return lanes_.size(); }

  /// Errors: kHost, the lane has ended.
  Result<void> give(std::size_t lane, std::size_t index);
  /// The next one that is done. Errors: kInterrupted; what keeps the suite from going on.
  Result<Played> wait();

 private:
  struct Lane {
    os::ProcessHandle process{};
    UniqueFd to{}, from{};
    std::string said{};
    bool busy{};
  };

  Result<void> add(const std::vector<std::string>& command);
  Result<Played> answer(std::size_t lane);

  launch::Supervisor& supervisor_;
  std::vector<Lane> lanes_{};
};

/// The other side: what a lane does, until nobody gives it a case any more. Returns its exit
/// status.
int serve_cases(launch::Supervisor& supervisor, const SuiteOptions& options,
                const std::vector<Case>& cases, history::RunDirectory& suite);

}  // namespace lockstep
