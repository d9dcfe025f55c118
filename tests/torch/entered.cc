#include "tests/torch/entered.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>

#include "harness/base/unique_fd.h"
#include "harness/entry/entry.h"
#include "harness/history/reader.h"

namespace lockstep::test {
namespace {

namespace fs = std::filesystem;

const fs::path kPrograms = fs::path(LOCKSTEP_SOURCE_DIR) / "tests/torch/programs";

std::string text_of(const fs::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// A folder that goes with the test.
struct Folder {
  fs::path path{};
  Folder() {
    std::string pattern = (fs::temp_directory_path() / "lockstep-entered-XXXXXX").string();
    path = ::mkdtemp(pattern.data());
  }
  ~Folder() { fs::remove_all(path); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
};

pid_t start(const std::vector<std::string>& command,
            const std::map<std::string, std::string>& added, const fs::path& output) {
  std::map<std::string, std::string> variables;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    variables[text.substr(0, text.find('='))] = text.substr(text.find('=') + 1);
  }
  for (const auto& [name, value] : added)
    variables[name] = value;
  std::vector<std::string> entries;
  for (const auto& [name, value] : variables)
    entries.push_back(name + "=" + value);
  std::vector<char*> arguments, environment;
  for (const std::string& word : command)
    arguments.push_back(const_cast<char*>(word.c_str()));
  for (const std::string& entry : entries)
    environment.push_back(const_cast<char*>(entry.c_str()));
  arguments.push_back(nullptr);
  environment.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_addopen(&actions, 1, output.c_str(), O_WRONLY | O_CREAT | O_APPEND,
                                     0600);
  ::posix_spawn_file_actions_adddup2(&actions, 1, 2);
  pid_t pid = -1;
  EXPECT_EQ(
      ::posix_spawn(&pid, arguments[0], &actions, nullptr, arguments.data(), environment.data()),
      0);
  ::posix_spawn_file_actions_destroy(&actions);
  return pid;
}

/// Free a moment ago.
std::string free_port() {
  const UniqueFd file(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  EXPECT_EQ(::bind(file.get(), reinterpret_cast<sockaddr*>(&address), size), 0);
  EXPECT_EQ(::getsockname(file.get(), reinterpret_cast<sockaddr*>(&address), &size), 0);
  return std::to_string(ntohs(address.sin_port));
}

int status_of(pid_t pid) {
  int status = 0;
  ::waitpid(pid, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

void read_histories(const fs::path& directory, Entered& entered) {
  for (const auto& entry : fs::directory_iterator(directory)) {
    if (entry.path().extension() == ".unseen")
      entered.unseen.push_back(text_of(entry.path()));
    auto source = history::FileSource::open(entry.path().string());
    if (entry.path().extension() != ".lsh" || !source)
      continue;
    auto read = history::read_process(std::move(*source), entry.path().filename().string());
    EXPECT_TRUE(read) << read.error().what;
    if (read)
      entered.processes.push_back(std::move(read->process));
  }
  std::sort(entered.processes.begin(), entered.processes.end(),
            [](const Process& a, const Process& b) {
              const int rank_a = a.rank ? a.rank->value : INT_MAX;
              const int rank_b = b.rank ? b.rank->value : INT_MAX;
              return std::pair(rank_a, a.pid) < std::pair(rank_b, b.pid);
            });
}

std::vector<std::string> command_of(const std::string& program) {
  return {LOCKSTEP_PYTHON, "-B", (kPrograms / program).string()};
}

Entered run_in(const fs::path& folder, const std::vector<std::string>& command, int ranks,
               const std::map<std::string, std::string>& environment) {
  Entered entered;
  const std::string port = free_port();
  std::vector<pid_t> started;
  for (int rank = 0; rank < ranks; ++rank) {
    std::map<std::string, std::string> added = environment;
    added.insert({{"RANK", std::to_string(rank)},
                  {"LOCAL_RANK", std::to_string(rank)},
                  {"WORLD_SIZE", std::to_string(ranks)},
                  {"MASTER_ADDR", "127.0.0.1"},
                  {"MASTER_PORT", port}});
    started.push_back(start(command, added, folder / std::to_string(rank)));
  }
  for (const pid_t pid : started)
    entered.statuses.push_back(status_of(pid));
  for (int rank = 0; rank < ranks; ++rank)
    entered.output += text_of(folder / std::to_string(rank));
  return entered;
}

}  // namespace

const Process& Entered::of_rank(int rank) const {
  static const Process kNone;
  const Process* found = nullptr;
  for (const Process& process : processes) {
    if (process.rank != Rank{rank})
      continue;
    EXPECT_EQ(found, nullptr) << "two processes are rank " << rank;
    found = &process;
  }
  EXPECT_NE(found, nullptr) << "no process is rank " << rank << "\n" << output;
  return found == nullptr ? kNone : *found;
}

Entered run_plain(const std::string& program, int ranks) {
  const Folder folder;
  return run_in(folder.path, command_of(program), ranks, {});
}

Entered run_entered(const std::string& program, int ranks) {
  const Folder folder;
  const fs::path history = folder.path / "history";
  fs::create_directory(history);
  const entry::Entry entry = entry::prepare(command_of(program), history.string());
  EXPECT_EQ(entry.unseen, "");
  Entered entered = run_in(folder.path, command_of(program), ranks, entry.environment);
  read_histories(history, entered);
  return entered;
}

std::string marked_line(const std::string& program, const std::string& marker) {
  std::ifstream file(kPrograms / program);
  std::string line;
  for (int number = 1; std::getline(file, line); ++number) {
    if (line.find("SITE: " + marker) != std::string::npos)
      return program + ":" + std::to_string(number);
  }
  ADD_FAILURE() << program << " has no line marked " << marker;
  return "";
}

}  // namespace lockstep::test
