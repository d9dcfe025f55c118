// Runs launch_chain as a user would, on a terminal of its own, and looks at it from outside through
// /proc.
#pragma once

#include <chrono>
#include <csignal>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "harness/base/unique_fd.h"
#include "harness/os/exit_report.h"
#include "harness/os/job.h"
#include "harness/protocol/message.h"

namespace lockstep::testing {

class ChainRun {
 public:
  using Clock = std::chrono::steady_clock;
  using Json = protocol::Json;

  /// Starts it with `flags`; through a shell with `prelude` in front where one is given.
  explicit ChainRun(const std::vector<std::string>& flags, const std::string& prelude = "");
  ~ChainRun();
  ChainRun(const ChainRun&) = delete;
  ChainRun& operator=(const ChainRun&) = delete;

  /// The next line it prints; discarded if there is none within 20 s.
  Json next_line();
  /// Its first line, remembered: "job", "guard", "supervisor", "warm", "ranks", ...
  const Json& ready();
  [[nodiscard]] pid_t pid(const std::string& role) const { return ready_[role].get<pid_t>(); }
  [[nodiscard]] pid_t rank(std::size_t i) const { return ready_["ranks"][i].get<pid_t>(); }

  void type(char key) const;  ///< On its terminal: '\x03' is Ctrl-C.
  static void send(pid_t pid, int signal) { ::kill(pid, signal); }

  /// Waits until everything of the job has ended. The names of what still lives 3 s after the call.
  std::vector<std::string> survivors();
  /// Of the program that the shell would wait for.
  os::ExitReport status();
  [[nodiscard]] const std::string& directory() const { return directory_; }
  [[nodiscard]] std::string errors() const;

 private:
  std::vector<std::string> living() const;

  std::string directory_;
  UniqueFd terminal_, output_;
  os::ProcessHandle process_;
  Json ready_;
  protocol::LineBuffer buffer_;
  std::vector<std::string> lines_;
  std::vector<os::ProcessHandle> watched_;
};

}  // namespace lockstep::testing
