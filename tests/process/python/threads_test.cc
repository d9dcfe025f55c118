// The Python frames of another process: each thread at its line, without stopping it.

#include <fcntl.h>
#include <gmock/gmock.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <fstream>

#include "harness/base/unique_fd.h"
#include "harness/os/python_frames.h"
#include "tests/process/python/interpreters.h"

namespace lockstep::test {
namespace {

using ::testing::Pair;
using ::testing::UnorderedElementsAre;

/// A running threads.py; killed at the end.
class Program {
 public:
  explicit Program(const std::string& python) {
    int ends[2];
    EXPECT_EQ(::pipe2(ends, O_CLOEXEC), 0);
    reading_ = UniqueFd(ends[0]);
    const UniqueFd writing(ends[1]);
    posix_spawn_file_actions_t actions;
    ::posix_spawn_file_actions_init(&actions);
    ::posix_spawn_file_actions_adddup2(&actions, writing.get(), STDOUT_FILENO);
    const char* const arguments[] = {python.c_str(), "-B", LOCKSTEP_THREADS_PROGRAM, nullptr};
    EXPECT_EQ(::posix_spawn(&pid_, python.c_str(), &actions, nullptr,
                            const_cast<char* const*>(arguments), environ),
              0);
    ::posix_spawn_file_actions_destroy(&actions);
    char ready = 0;
    EXPECT_EQ(::read(reading_.get(), &ready, 1), 1);
  }
  ~Program() {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;
  [[nodiscard]] pid_t pid() const { return pid_; }

 private:
  pid_t pid_{};
  UniqueFd reading_{};
};

/// "in_lock:10" of the line marked so.
std::string marked(const std::string& function, const std::string& marker) {
  std::ifstream file(LOCKSTEP_THREADS_PROGRAM);
  std::string line;
  for (int number = 1; std::getline(file, line); ++number) {
    if (line.find("SITE: " + marker) != std::string::npos)
      return function + ":" + std::to_string(number);
  }
  return "no line is marked " + marker;
}

/// Past main(), where the program is about to be when it says that it is ready.
bool all_in_functions(const std::vector<os::PythonThread>& threads) {
  return !threads.empty() &&
         std::all_of(threads.begin(), threads.end(), [](const os::PythonThread& thread) {
           return !thread.moving && thread.frames.front().function.rfind("in_", 0) == 0;
         });
}

TEST(PythonThreads, AreReadFromOutside) {
  for (const std::string& python : interpreters()) {
    SCOPED_TRACE(python);
    const Program program(python);
    auto threads = os::read_python_threads(program.pid());
    for (int i = 0; i < 500 && threads && !all_in_functions(*threads); ++i) {
      ::usleep(10'000);
      threads = os::read_python_threads(program.pid());
    }
    ASSERT_TRUE(threads) << threads.error().what;
    std::vector<std::string> innermost;
    for (const os::PythonThread& thread : *threads) {
      EXPECT_FALSE(thread.moving);
      EXPECT_EQ(thread.frames.front().file, LOCKSTEP_THREADS_PROGRAM);
      innermost.push_back(thread.frames.front().function + ":" +
                          std::to_string(thread.frames.front().line));
      EXPECT_EQ(thread.frames.back().function,
                thread.tid == program.pid() ? "<module>" : "Thread._bootstrap");
      const bool handles = thread.frames.front().function == "in_socket";
      EXPECT_EQ(thread.handles, handles ? "KeyError: 2" : "");
      ASSERT_EQ(thread.passed.size(), handles ? 2U : 0U);
      if (handles) {
        EXPECT_EQ(thread.passed.front().function + ":" + std::to_string(thread.passed.front().line),
                  marked("lookup", "raise"));
        EXPECT_EQ(thread.passed.back().function, "in_socket");
      }
      if (thread.tid != program.pid())
        continue;
      EXPECT_THAT(thread.frames.front().integers,
                  UnorderedElementsAre(Pair("epoch", 3), Pair("below", -7), Pair("none", 0)));
      EXPECT_THAT(thread.frames.back().integers, UnorderedElementsAre(Pair("step", 5)));
    }
    EXPECT_THAT(innermost,
                UnorderedElementsAre(marked("in_lock", "lock"), marked("in_socket", "socket"),
                                     marked("in_sleep", "sleep")));
  }
}

TEST(PythonThreads, WhatIsNotPythonSaysSo) {
  const auto threads = os::read_python_threads(::getpid());
  ASSERT_FALSE(threads);
  EXPECT_EQ(threads.error().kind, Error::Kind::kEnvironment);
}

}  // namespace
}  // namespace lockstep::test
