#include "tests/process/launch/chain_run.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <pty.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "harness/os/poll_until.h"

namespace lockstep::testing {
namespace {

constexpr auto kLimit = std::chrono::seconds(20);
constexpr auto kGone = std::chrono::seconds(3);

[[noreturn]] void become_chain(int output, const std::string& errors,
                               const std::vector<std::string>& command) {
  const int err = ::open(errors.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0666);
  ::dup2(output, STDOUT_FILENO);
  ::dup2(err, STDERR_FILENO);
  std::vector<char*> arguments;
  for (const std::string& argument : command)
    arguments.push_back(const_cast<char*>(argument.c_str()));
  arguments.push_back(nullptr);
  ::execv(arguments[0], arguments.data());
  ::_exit(127);
}

}  // namespace

ChainRun::ChainRun(const std::vector<std::string>& flags, const std::string& prelude) {
  ::prctl(PR_SET_CHILD_SUBREAPER,
          1);  // What is left behind is to be seen, and reaped, by the test.
  std::string name = std::filesystem::temp_directory_path() / "lockstep-chain-XXXXXX";
  EXPECT_NE(::mkdtemp(name.data()), nullptr);
  directory_ = name;
  std::vector<std::string> command{LAUNCH_CHAIN, LAUNCH_FAKE_HOST, directory_};
  command.insert(command.end(), flags.begin(), flags.end());
  if (!prelude.empty()) {
    std::string line = prelude + " exec";
    for (const std::string& argument : command)
      line += " '" + argument + "'";
    command = {"/bin/sh", "-c", line};
  }
  std::array<int, 2> ends{};
  EXPECT_EQ(::pipe2(ends.data(), O_CLOEXEC), 0);
  output_ = UniqueFd(ends[0]);
  const UniqueFd theirs(ends[1]);
  int terminal = -1;
  const pid_t pid = ::forkpty(&terminal, nullptr, nullptr, nullptr);
  if (pid == 0)
    become_chain(theirs.get(), directory_ + "/stderr", command);
  terminal_ = UniqueFd(terminal);
  process_ = *os::ProcessHandle::open(pid);
}

ChainRun::~ChainRun() {
  if (process_)
    process_.signal(SIGKILL);
  if (ready_.is_object()) {
    os::end_everything({.marker = "LOCKSTEP_JOB=" + ready_.value("job", "")}, Clock::now() + kGone);
  }
  while (::waitpid(-1, nullptr, WNOHANG) > 0) {
  }
  std::error_code error;
  std::filesystem::remove_all(directory_, error);
}

ChainRun::Json ChainRun::next_line() {
  const Clock::time_point deadline = Clock::now() + kLimit;
  while (lines_.empty() && os::poll_until(output_.get(), POLLIN, deadline)) {
    std::array<char, 4096> chunk{};
    const ssize_t got = ::read(output_.get(), chunk.data(), chunk.size());
    if (got <= 0 || !buffer_.append({chunk.data(), static_cast<std::size_t>(got)}, lines_))
      break;
  }
  if (lines_.empty())
    return Json(Json::value_t::discarded);
  Json line = Json::parse(lines_.front(), nullptr, false);
  lines_.erase(lines_.begin());
  return line;
}

const ChainRun::Json& ChainRun::ready() {
  if (ready_.is_object())
    return ready_;
  ready_ = next_line();
  std::vector<pid_t> pids;
  for (const char* role : {"guard", "supervisor", "warm", "orphan"}) {
    if (ready_.is_object() && ready_.contains(role))
      pids.push_back(pid(role));
  }
  if (ready_.is_object() && ready_.contains("ranks"))
    pids.insert(pids.end(), ready_["ranks"].begin(), ready_["ranks"].end());
  for (const pid_t pid : pids) {
    if (Result<os::ProcessHandle> process = os::ProcessHandle::open(pid))
      watched_.push_back(std::move(*process));
  }
  return ready_;
}

void ChainRun::type(char key) const { EXPECT_EQ(::write(terminal_.get(), &key, 1), 1); }

std::vector<std::string> ChainRun::living() const {
  const std::string marker = "LOCKSTEP_JOB=" + ready_.value("job", "none");
  std::vector<std::string> names;
  for (const os::ProcessStat& process : os::read_processes()) {
    bool known = false;
    for (const os::ProcessHandle& watched : watched_)
      known |= watched.id() == process.id;
    if (!process.zombie() && (known || os::has_environment_entry(process.id.pid, marker)))
      names.push_back(process.name + " " + std::to_string(process.id.pid));
  }
  return names;
}

std::vector<std::string> ChainRun::survivors() {
  const Clock::time_point deadline = Clock::now() + kGone;
  for (const os::ProcessHandle& watched : watched_)
    [[maybe_unused]] const bool gone = watched.wait_ended(deadline);
  return living();
}

os::ExitReport ChainRun::status() {
  const auto report = os::reap(process_.pidfd(), Clock::now() + kLimit);
  return report && *report ? **report : os::ExitReport{};
}

std::string ChainRun::errors() const {
  std::ifstream file(directory_ + "/stderr");
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

}  // namespace lockstep::testing
