#include "tests/torch/ranks.h"

#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>

#include "fixtures/implementations/process_group.h"

namespace lockstep::test {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

struct Child {
  pid_t pid{};
  int pipe{};
  std::string text{};
};

void write_all(int fd, const std::string& text) {
  for (std::size_t at = 0; at < text.size();) {
    const ssize_t written = ::write(fd, text.data() + at, text.size() - at);
    if (written <= 0)
      return;
    at += static_cast<std::size_t>(written);
  }
}

[[noreturn]] void run_child(RankContext context, int pipe,
                            const std::function<std::string(RankContext&)>& body) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  try {
    context.group = parallel::connect_gloo({.file = (context.directory / "rendezvous").string(),
                                            .rank = context.rank,
                                            .world = context.world,
                                            .timeout = std::chrono::seconds(20)});
    write_all(pipe, "=" + body(context));
    ::close(pipe);
    // Whoever left now might leave before another has connected to it. All are killed in the end.
    while (true)
      ::pause();
  } catch (const std::exception& error) {
    write_all(pipe, std::string("!") + error.what());
  }
  std::_Exit(0);
}

// True while there may be more to read.
bool read_some(Child& child) {
  char bytes[4096];
  const ssize_t got = ::read(child.pipe, bytes, sizeof bytes);
  if (got <= 0)
    return false;
  child.text.append(bytes, static_cast<std::size_t>(got));
  return true;
}

void read_until(Child& child, Clock::time_point deadline) {
  while (true) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
    pollfd ready{child.pipe, POLLIN, 0};
    if (left <= 0 || ::poll(&ready, 1, static_cast<int>(left)) <= 0 || !read_some(child))
      return;
  }
}

}  // namespace

std::vector<std::string> run_ranks(int world, const std::function<std::string(RankContext&)>& body,
                                   const std::function<void(const fs::path&)>& inspect) {
  at::set_num_threads(1);
  std::string pattern = (fs::temp_directory_path() / "lockstep-ranks-XXXXXX").string();
  if (::mkdtemp(pattern.data()) == nullptr)
    throw std::runtime_error("no temporary directory");
  const fs::path directory = pattern;
  std::vector<Child> children;
  for (int rank = 0; rank < world; ++rank) {
    int ends[2];
    if (::pipe(ends) != 0)
      throw std::runtime_error("no pipe");
    const pid_t pid = ::fork();
    if (pid == 0) {
      ::close(ends[0]);
      run_child({.rank = rank, .world = world, .directory = directory}, ends[1], body);
    }
    ::close(ends[1]);
    children.push_back({pid, ends[0], ""});
  }
  const auto deadline = Clock::now() + std::chrono::seconds(30);
  std::vector<std::string> texts;
  for (Child& child : children) {
    read_until(child, deadline);
    if (child.text.empty() || child.text.front() != '=')
      ADD_FAILURE() << "rank " << texts.size() << ": "
                    << (child.text.empty() ? "no answer" : child.text.substr(1));
    texts.push_back(child.text.empty() || child.text.front() != '=' ? "" : child.text.substr(1));
  }
  for (const Child& child : children) {
    ::kill(child.pid, SIGKILL);
    ::waitpid(child.pid, nullptr, 0);
    ::close(child.pipe);
  }
  if (inspect)
    inspect(directory);
  fs::remove_all(directory);
  return texts;
}

}  // namespace lockstep::test
