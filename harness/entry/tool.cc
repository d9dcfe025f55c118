#include "harness/entry/tool.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>

#include "harness/base/unique_fd.h"

namespace lockstep::entry {
namespace {

constexpr std::size_t kOutputMax = 1 << 20;

/// Until the other end is closed. False at the deadline.
bool read_all(int fd, std::string& output, std::chrono::steady_clock::time_point deadline) {
  for (;;) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        deadline - std::chrono::steady_clock::now());
    if (left.count() <= 0)
      return false;
    pollfd ready{fd, POLLIN, 0};
    if (::poll(&ready, 1, static_cast<int>(left.count())) <= 0)
      continue;
    char buffer[4096];
    const ssize_t got = ::read(fd, buffer, sizeof buffer);
    if (got == 0)
      return true;
    if (got < 0 && errno != EINTR)
      return true;
    if (got > 0 && output.size() < kOutputMax)
      output.append(buffer, static_cast<std::size_t>(got));
  }
}

}  // namespace

ToolResult run_tool(const std::vector<std::string>& command, std::chrono::seconds limit) {
  ToolResult result;
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0)
    return result;
  const UniqueFd reading(ends[0]);
  UniqueFd writing(ends[1]);
  std::vector<char*> arguments;
  for (const std::string& word : command)
    arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  ::posix_spawn_file_actions_adddup2(&actions, writing.get(), STDOUT_FILENO);
  ::posix_spawn_file_actions_adddup2(&actions, writing.get(), STDERR_FILENO);
  pid_t pid = -1;
  result.started =
      ::posix_spawnp(&pid, arguments[0], &actions, nullptr, arguments.data(), environ) == 0;
  ::posix_spawn_file_actions_destroy(&actions);
  writing = UniqueFd();
  if (!result.started)
    return result;
  if (!read_all(reading.get(), result.output, std::chrono::steady_clock::now() + limit))
    ::kill(pid, SIGKILL);
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  if (WIFEXITED(status))
    result.status = WEXITSTATUS(status);
  return result;
}

}  // namespace lockstep::entry
