// One host of a case as the launcher holds it: the process, its conversation and its log files.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "harness/base/error.h"
#include "harness/base/unique_fd.h"
#include "harness/launch/host_job.h"
#include "harness/os/job.h"
#include "harness/protocol/message.h"

namespace lockstep::launch {

/// A file that a host writes and we keep from growing without bound.
class LogFile {
 public:
  static Result<LogFile> create(const std::string& path, std::uint64_t bytes_max);
  [[nodiscard]] int fd() const { return fd_.get(); }
  /// Cuts what is over the bound. True the first time something was cut.
  bool bound();
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  LogFile(std::string path, UniqueFd fd, std::uint64_t bytes_max)
      : path_(std::move(path)), fd_(std::move(fd)), bytes_max_(bytes_max) {}
  std::string path_;
  UniqueFd fd_;
  std::uint64_t bytes_max_;
  bool cut_{};
};

/// Our side of a conversation; never blocks.
class Conversation {
 public:
  explicit Conversation(UniqueFd socket) : socket_(std::move(socket)) {}

  [[nodiscard]] int fd() const { return socket_.get(); }
  [[nodiscard]] bool readable() const { return !finished_; }
  [[nodiscard]] bool has_output() const { return !output_.empty(); }
  /// When the other side closed its end; its process is then about to end, or broke the protocol.
  [[nodiscard]] std::optional<std::chrono::steady_clock::time_point> closed_at() const {
    return closed_at_;
  }
  void forget_close() { closed_at_.reset(); }

  void queue(std::string_view line) { output_.append(line); }
  void write_some();
  /// Reads one chunk. False: nothing more for now. Errors: kHost, a line too long; it is not read
  /// any more.
  Result<bool> read_some(std::vector<std::string>& lines);

 private:
  void finish();

  UniqueFd socket_;
  protocol::LineBuffer input_{};
  std::string output_{};
  bool finished_{};
  std::optional<std::chrono::steady_clock::time_point> closed_at_{};
};

struct HostProcess {
  JobProcess job{};
  Conversation conversation;
  LogFile out, err;
  [[nodiscard]] Host shown() const {
    return {.role = job.role,
            .rank = job.rank,
            .pid = job.process.pid(),
            .start_ticks = job.process.id().start_ticks,
            .ended = job.ended};
  }
};

}  // namespace lockstep::launch
