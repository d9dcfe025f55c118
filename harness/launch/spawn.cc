#include "harness/launch/spawn.h"

#define BOOST_PROCESS_V2_SEPARATE_COMPILATION 1
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <boost/process/v2/environment.hpp>
#include <boost/process/v2/posix/default_launcher.hpp>
#include <boost/process/v2/process.hpp>
#include <cerrno>
#include <chrono>
#include <csignal>

#include "harness/os/exit_report.h"
#include "harness/os/proc.h"

namespace lockstep::launch {
namespace {

namespace process = boost::process::v2;
constexpr int kControlFd = 3;
constexpr const char* kShell = "/bin/sh";
constexpr auto kReapLimit = std::chrono::seconds(1);

// Runs between fork and exec, so it makes system calls only.
struct ChildSetup {
  const SpawnOptions& options;
  pid_t parent;

  template <class Launcher>
  process::error_code on_setup(Launcher& launcher, const process::filesystem::path&,
                               const char* const* arguments) {
    // As the user wrote it, which is what a shell says of itself in its messages; Boost would have
    // the path that was found. The vector is Boost's, and not const.
    const_cast<const char**>(arguments)[0] = options.command.front().c_str();
    if (options.control_fd >= 0)
      launcher.fd_whitelist.push_back(kControlFd);
    if (options.as_we_are) {  // What is ours alone closes itself on exec.
      for (const int fd : os::open_descriptors()) {
        if (fd > STDERR_FILENO)
          launcher.fd_whitelist.push_back(fd);
      }
    }
    return {};
  }

  template <class Launcher>
  process::error_code on_exec_setup(Launcher&, const process::filesystem::path&,
                                    const char* const*) {
    if (options.own_group && !options.as_we_are)
      ::setpgid(0, 0);
    ::sigprocmask(SIG_SETMASK, &options.signals.blocked, nullptr);
    if (options.signals.child_ignored)
      ::signal(SIGCHLD, SIG_IGN);
    // The parent may have died just before the parent-death signal took effect, so ask after.
    if (::prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || ::getppid() != parent)
      return process::error_code(ESRCH, boost::system::system_category());
    if (options.as_we_are)
      return {};
    const int in =
        options.stdin_fd >= 0 ? options.stdin_fd : ::open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (!onto(in, STDIN_FILENO) || !onto(options.stdout_fd, STDOUT_FILENO) ||
        !onto(options.stderr_fd, STDERR_FILENO) || !onto(options.control_fd, kControlFd))
      return process::error_code(errno, boost::system::system_category());
    return {};
  }

  static bool onto(int fd, int target) {
    if (fd < 0)
      return true;
    // dup2 onto itself would leave close-on-exec set.
    return fd == target ? ::fcntl(fd, F_SETFD, 0) == 0 : ::dup2(fd, target) >= 0;
  }
};

// "NAME=value", ours with `added` on top. (Boost's own environment map does not compile in 1.81.)
std::vector<std::string> merged_environment(const std::map<std::string, std::string>& added) {
  std::vector<std::string> variables;
  for (char** at = environ; *at != nullptr; ++at) {
    const std::string variable = *at;
    if (!added.contains(variable.substr(0, variable.find('='))))
      variables.push_back(variable);
  }
  for (const auto& [name, value] : added)
    variables.push_back(fmt::format("{}={}", name, value));
  return variables;
}

// Boost's error pipe must not land on the number that the control socket takes in the child.
class ReservedDescriptor {
 public:
  ReservedDescriptor() {
    if (::fcntl(kControlFd, F_GETFD) < 0) {
      UniqueFd lowest(::open("/dev/null", O_RDONLY | O_CLOEXEC));
      if (lowest.get() == kControlFd)
        reserved_ = std::move(lowest);
      else if (lowest)
        reserved_ = UniqueFd(::fcntl(lowest.get(), F_DUPFD_CLOEXEC, kControlFd));
    }
  }

 private:
  UniqueFd reserved_{};
};

}  // namespace

Result<os::ProcessHandle> spawn(const SpawnOptions& options) {
  if (options.command.empty())
    return Error{Error::Kind::kUsage, "no command to start", ""};
  const std::string& program = options.command.front();
  const auto path = program.find('/') == std::string::npos
                        ? process::environment::find_executable(program)
                        : process::filesystem::path(program);
  if (path.empty())
    return Error{Error::Kind::kEnvironment, fmt::format("cannot find {} in PATH", program), ""};
  const std::vector<std::string> variables = merged_environment(options.environment);
  std::vector<const char*> pointers;
  for (const std::string& variable : variables)
    pointers.push_back(variable.c_str());
  pointers.push_back(nullptr);
  const ReservedDescriptor reserved;
  const std::vector<std::string> arguments(options.command.begin() + 1, options.command.end());
  boost::asio::io_context context;
  process::error_code error;
  process::posix::default_launcher launcher;
  launcher.env = pointers.data();
  auto child =
      launcher(context.get_executor(), error, path, arguments, ChildSetup{options, ::getpid()});
  const bool is_script = error.value() == ENOEXEC && path != kShell;
  if (error) {
    // Boost leaves the child that could not exec unreaped.
    if (Result<os::ProcessHandle> failed = os::ProcessHandle::open(launcher.pid);
        failed && launcher.pid > 0) [[maybe_unused]]
      const auto report = os::reap(failed->pidfd(), std::chrono::steady_clock::now() + kReapLimit);
  }
  if (is_script) {  // One without a first line: as execvp(3) and every shell do.
    SpawnOptions by_shell = options;
    by_shell.command = {kShell, path.string()};
    by_shell.command.insert(by_shell.command.end(), arguments.begin(), arguments.end());
    return spawn(by_shell);
  }
  if (error) {
    return Error{Error::Kind::kEnvironment,
                 fmt::format("cannot start {}: {}", program, error.message()), ""};
  }
  const auto pid = child.id();
  child.detach();  // we hold a pidfd of our own and reap it ourselves
  return os::ProcessHandle::open(pid);
}

}  // namespace lockstep::launch
