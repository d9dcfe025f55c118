// What ranks say: read from their pipes, passed on unchanged to our stdout or stderr, and kept in a
// file for each. Whoever reads us slowly slows the ranks down, as it would without us.
#pragma once

#include <poll.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "harness/base/error.h"
#include "harness/base/unique_fd.h"
#include "harness/launch/host_process.h"

namespace lockstep::launch {

class Output {
 public:
  using Clock = std::chrono::steady_clock;

  explicit Output(std::uint64_t log_bytes_max);

  /// A pipe to `log` and to our descriptor `to` (1 or 2); a terminal, if that is one. Returns its
  /// writing end. Errors: kIo,
  /// kEnvironment.
  Result<UniqueFd> add(const std::string& log, int to);

  /// Of the last add().
  [[nodiscard]] std::size_t last_stream() const { return streams_.size() - 1; }

  /// What must be waited for before the next pump().
  void wait_for(std::vector<pollfd>& entries) const;
  /// When the next pump() is due, even if nothing comes: a line without an end is passed on.
  [[nodiscard]] Clock::time_point due() const;
  /// Reads and writes what can be without waiting. Lines of different ranks stay whole.
  void pump();
  /// Nobody writes any more: the same, and waits until all of it is written or it `gives_up`.
  void finish(const std::function<bool()>& gives_up);
  /// The last of what came, at least 64 KiB of it; and when it came.
  [[nodiscard]] const std::string& tail(std::size_t stream) const { return streams_[stream].tail; }
  [[nodiscard]] std::uint64_t last_read_ns(std::size_t stream) const {
    return streams_[stream].last_read_ns;
  }

 private:
  struct Stream {
    UniqueFd pipe;
    LogFile log;
    std::size_t outlet{};
    std::string tail{};
    std::string unfinished{};  ///< The beginning of a line, not passed on yet.
    std::uint64_t last_read_ns{};
    Clock::time_point read_at{};
  };
  struct Outlet {
    int fd{};
    std::string pending{};
    bool closed{};
    [[nodiscard]] bool full() const;
    void write_some();
  };
  bool read_some(Stream& stream);
  void pass_on(Stream& stream, std::size_t size);

  std::uint64_t log_bytes_max_;
  std::vector<Stream> streams_{};
  std::array<Outlet, 2> outlets_{};
};

}  // namespace lockstep::launch
