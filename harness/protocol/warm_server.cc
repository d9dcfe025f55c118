#include "harness/protocol/warm_server.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>

namespace lockstep::protocol {
namespace {

constexpr int kNotStarted = 125;  // exit status of a rank whose chain broke before its main began

std::size_t count_own_threads() {
  std::error_code error;
  std::size_t count = 0;
  for (std::filesystem::directory_iterator at("/proc/self/task", error), end; !error && at != end;
       at.increment(error))
    ++count;
  return count;
}

struct Pipe {
  UniqueFd read{}, write{};
};

Result<Pipe> make_pipe() {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0)
    return Error{Error::Kind::kEnvironment, std::string("pipe: ") + std::strerror(errno), ""};
  return Pipe{UniqueFd(ends[0]), UniqueFd(ends[1])};
}

bool read_all(int fd, void* into, std::size_t size) {
  for (std::size_t at = 0; at < size;) {
    const ssize_t got = ::read(fd, static_cast<char*>(into) + at, size - at);
    if (got < 0 && errno == EINTR)
      continue;
    if (got <= 0)
      return false;
    at += static_cast<std::size_t>(got);
  }
  return true;
}

// Our caller, the intermediate, or the supervisor broke the chain: go without a word, the
// supervisor says why.
[[noreturn]] void leave() { ::_exit(kNotStarted); }

struct ForkRequest {
  pid_t supervisor{};
  Json environment{};
  Packet packet{};
};

// In the forked rank. `gate` opens when the intermediate is gone, that is, when our parent is the
// supervisor.
void become_rank(const ForkRequest& request, int gate) {
  char go = 0;
  if (!read_all(gate, &go, 1) || ::getppid() != request.supervisor)
    leave();
  // The parent may have died just before this took effect, so ask again after.
  if (::prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || ::getppid() != request.supervisor)
    leave();
  ::setpgid(0, 0);
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  ::signal(SIGPIPE, SIG_DFL);
  for (const auto& [name, value] : request.environment.items())
    ::setenv(name.c_str(), value.get<std::string>().c_str(), 1);
  if (::dup2(request.packet.descriptors[1].get(), STDOUT_FILENO) < 0 ||
      ::dup2(request.packet.descriptors[2].get(), STDERR_FILENO) < 0)
    leave();
}

class WarmServer {
 public:
  WarmServer(int control, const std::function<Result<void>()>& check,
             const std::function<int(RankStart)>& run)
      : control_(control), check_(check), run_(run) {}

  int serve() {
    if (!send(Json{{"warm", ::getpid()}}))
      return 1;
    while (true) {
      Result<std::optional<Packet>> packet = receive_packet(control_.get(), kNoDeadline);
      if (!packet)
        return 1;
      if (!*packet)
        return 0;
      if (!answer(std::move(**packet)))
        return 1;
    }
  }

 private:
  bool send(const Json& object) {
    const std::string bytes = encode(object);
    return send_packet(control_.get(), bytes, {}, kNoDeadline).has_value();
  }

  bool answer(Packet packet) {
    const Json request = Json::parse(packet.bytes, nullptr, /*allow_exceptions=*/false);
    if (!request.is_object() || !request.contains("id"))
      return send(Json{{"id", 0}, {"error", "a request that is no JSON object with an id"}});
    const Result<pid_t> pid = start(request, std::move(packet));
    if (!pid)
      return send(Json{{"id", request["id"]}, {"error", pid.error().what}});
    return send(Json{{"id", request["id"]}, {"pid", *pid}});
  }

  Result<pid_t> start(const Json& request, Packet packet) {
    ForkRequest fork_request{.supervisor = request.value("supervisor", 0),
                             .environment = request.value("environment", Json::object()),
                             .packet = std::move(packet)};
    if (fork_request.packet.descriptors.size() != 3 || fork_request.supervisor <= 0)
      return Error{Error::Kind::kHost,
                   "a fork request needs the supervisor's pid and three descriptors", ""};
    for (const auto& [name, value] : fork_request.environment.items()) {
      if (!value.is_string())
        return Error{Error::Kind::kHost, "environment values must be strings: " + name, ""};
    }
    // fork() copies one thread only; a lock another one held, or a pool of workers, would hang the
    // rank later.
    if (const std::size_t threads = count_own_threads(); threads != 1)
      return Error{Error::Kind::kHost,
                   "the warm parent has " + std::to_string(threads) + " threads, must have 1", ""};
    if (check_) {
      if (Result<void> ok = check_(); !ok)
        return ok.error();
    }
    return fork_rank(std::move(fork_request));
  }

  Result<pid_t> fork_rank(ForkRequest request) {
    Result<Pipe> named = make_pipe();
    Result<Pipe> gate = make_pipe();
    if (!named || !gate)
      return named ? gate.error() : named.error();
    std::fflush(nullptr);  // else what is buffered here would be printed by every rank as well
    const pid_t intermediate = ::fork();
    if (intermediate < 0)
      return Error{Error::Kind::kEnvironment, std::string("fork: ") + std::strerror(errno), ""};
    if (intermediate == 0) {
      const pid_t rank = ::fork();
      if (rank != 0) {
        const bool told =
            rank > 0 && ::write(named->write.get(), &rank, sizeof rank) == sizeof rank;
        ::_exit(told ? 0 : 1);
      }
      control_.reset();
      named->read.reset();
      named->write.reset();
      gate->write.reset();
      become_rank(request, gate->read.get());
      gate->read.reset();
      RankStart started{.conversation = std::move(request.packet.descriptors[0])};
      request.packet.descriptors.clear();
      std::exit(run_(std::move(started)));
    }
    named->write.reset();
    gate->read.reset();
    // No deadline here: the supervisor has one, and ends this process when it passes.
    pid_t rank = 0;
    const bool known = read_all(named->read.get(), &rank, sizeof rank);
    while (::waitpid(intermediate, nullptr, 0) < 0 && errno == EINTR) {
    }
    // Dropping the gate unopened makes a rank that nobody knows leave by itself.
    if (!known)
      return Error{Error::Kind::kHost, "the intermediate process died before it named the rank",
                   ""};
    if (::write(gate->write.get(), "g", 1) != 1)
      return Error{Error::Kind::kHost, "the rank died before it began", ""};
    return rank;
  }

  UniqueFd control_;
  const std::function<Result<void>()>& check_;
  const std::function<int(RankStart)>& run_;
};

}  // namespace

int serve_warm(int control_fd, const std::function<Result<void>()>& before_fork_check,
               const std::function<int(RankStart)>& run_rank) {
  // The rank writes to the gate of one that was killed: an error, not a signal.
  ::signal(SIGPIPE, SIG_IGN);
  ::fcntl(control_fd, F_SETFD, FD_CLOEXEC);
  return WarmServer(control_fd, before_fork_check, run_rank).serve();
}

}  // namespace lockstep::protocol
