// A Run: everything that is known of one job, as plain values. Readers fill it, checkers judge it,
// tests type it. It holds what was seen and says what could not be seen; it holds no opinion.
//
// Times are nanoseconds of the host's monotonic clock (RUN/run.json and every process file carry
// one monotonic/wall pair). `record` is the number of the event in its file, so that a gap is
// visible.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "harness/base/error.h"
#include "harness/base/rank_set.h"
#include "harness/history/events.h"
#include "harness/history/plan.h"
#include "harness/history/process.h"

namespace lockstep {

/// A tensor's values, widened to double (integers up to 2^53 stay exact).
struct Tensor {
  std::string dtype{};
  std::vector<std::int64_t> shape{};
  std::vector<double> values{};
};

constexpr std::uint64_t kClocksUnknown = UINT64_MAX / 4;  ///< As Run::clock_error_ns.

struct Run {
  std::string directory{};  ///< Empty for a Run typed in memory.
  Plan plan{};
  std::vector<Process> processes{};

  std::vector<ProcessStart> starts{};
  std::vector<ProcessEnd> ends{};
  std::vector<Acted> acted{};
  std::vector<StateSample> states{};
  std::vector<StackSample> stacks{};
  std::vector<Request> requests{};
  std::vector<Observation> observations{};
  std::vector<Raised> raised{};
  std::vector<Mark> marks{};
  std::vector<Note> notes{};
  std::vector<Leftover> leftovers{};
  std::vector<Unwaited> unwaited{};
  std::vector<LauncherEnd> launcher_ends{};
  std::vector<Stranger> strangers{};
  std::vector<HostSilent> silent_hosts{};
  std::vector<Unacknowledged> unacknowledged{};
  std::vector<LateDevices> late_devices{};
  std::vector<Descriptors> descriptors{};

  std::vector<std::string>
      missing{};             ///< What the reader could not get, one sentence each (LS901).
  bool journal_complete{};   ///< The supervisor's journal has no gap and ends with its closing
                             ///< record.
  std::uint64_t ended_ns{};  ///< When that was written; 0: not known.
  bool live{};               ///< Still running: the end of everything is open.

  /// Of a job on several hosts, whose runs were merged (hosts.h): their names, and how wrong times
  /// of one may be beside those of another. Empty and 0: one host.
  std::vector<std::string> hosts{};
  std::uint64_t clock_error_ns{};

  /// Reads an observed tensor; LS901 (kMalformedHistory) if the file does not match the digest. In
  /// tests a map.
  std::function<Result<Tensor>(const Observation&)> tensor{};

  [[nodiscard]] const Process* process_of(Rank rank) const {
    for (const Process& process : processes) {
      if (process.rank == rank)
        return &process;
    }
    return nullptr;
  }
};

}  // namespace lockstep
