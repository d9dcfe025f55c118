#include "harness/launch/warm_parent.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>

#include "harness/launch/spawn.h"
#include "harness/os/exit_report.h"

namespace lockstep::launch {
namespace {

using Clock = std::chrono::steady_clock;
using protocol::Json;

Error errno_error(const std::string& what) {
  return {Error::Kind::kEnvironment, fmt::format("{}: {}", what, std::strerror(errno)), ""};
}

}  // namespace

WarmParent::WarmParent(Supervisor& supervisor, WarmOptions options)
    : supervisor_(supervisor), options_(std::move(options)) {}

WarmParent::~WarmParent() { end(); }

const os::ProcessHandle* WarmParent::process() const { return process_ ? &process_ : nullptr; }

Result<void> WarmParent::ensure_started() {
  if (process_ && !process_.ended())
    return {};
  end();
  return start();
}

Result<void> WarmParent::start() {
  Result<protocol::PacketPair> sockets = protocol::make_packet_pair();
  if (!sockets)
    return sockets.error();
  const UniqueFd log(
      ::open(options_.log_file.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666));
  if (!log)
    return errno_error(fmt::format("cannot write {}", options_.log_file));
  Result<os::ProcessHandle> started = spawn({.command = options_.command,
                                             .environment = options_.environment,
                                             .stdout_fd = log.get(),
                                             .stderr_fd = log.get(),
                                             .control_fd = sockets->theirs.get()});
  if (!started)
    return started.error();
  process_ = std::move(*started);
  control_ = std::move(sockets->ours);
  sockets->theirs.reset();  // else its death would not close the socket
  supervisor_.keep(process_);
  const Result<Json> hello = receive(options_.start_limit, "start");
  if (!hello) {
    end();
    return hello.error();
  }
  return {};
}

void WarmParent::end() {
  if (!process_)
    return;
  // It holds nothing and serves nobody, so there is no grace; and it is killed before its socket
  // closes, so that it does not begin an exit of its own, which may start helpers (LeakSanitizer's
  // does).
  process_.signal(SIGKILL);
  control_.reset();
  [[maybe_unused]] const auto report =
      os::reap(process_.pidfd(), Clock::now() + std::chrono::seconds(5));
  supervisor_.release(process_);
  process_ = os::ProcessHandle();
}

Error WarmParent::lost(const std::string& what_for) {
  const auto report = os::reap(process_.pidfd(), Clock::now() + std::chrono::seconds(1));
  const std::string how = report && *report ? (*report)->to_string() : "closed its control socket";
  return {Error::Kind::kHost,
          fmt::format("the warm parent {} ({}) {}; asked to {}", options_.command.front(),
                      process_.pid(), how, what_for),
          fmt::format("its output is in {}; the next case starts it anew", options_.log_file)};
}

Result<Json> WarmParent::receive(std::chrono::milliseconds limit, const std::string& what_for) {
  constexpr auto kSlice = std::chrono::milliseconds(100);
  for (auto left = limit; left.count() > 0;) {
    if (const std::string why = supervisor_.interrupted(); !why.empty())
      return Error{Error::Kind::kInterrupted, why, ""};
    Result<std::optional<protocol::Packet>> packet =
        protocol::receive_packet(control_.get(), Clock::now() + kSlice);
    if (packet && *packet) {
      Json object = Json::parse((*packet)->bytes, nullptr, /*allow_exceptions=*/false);
      if (!object.is_object())
        return Error{Error::Kind::kHost,
                     "the warm parent answered with something that is no JSON object", ""};
      return Result<Json>(boost::system::in_place_value, std::move(object));
    }
    // Its intermediate may hold the socket open after its death.
    if (packet || packet.error().kind != Error::Kind::kTimeout || process_.ended())
      return lost(what_for);
    // Somebody stopped it: that pauses us and is no failure.
    const std::optional<os::ProcessStat> stat = os::read_process(process_.pid());
    if (!stat || (stat->state != 'T' && stat->state != 't'))
      left -= kSlice;
  }
  return Error{Error::Kind::kTimeout,
               fmt::format("the warm parent {} ({}) did not {} within {} ms",
                           options_.command.front(), process_.pid(), what_for, limit.count()),
               fmt::format("its output is in {}", options_.log_file)};
}

Result<ForkedHost> WarmParent::fork_host(const std::map<std::string, std::string>& environment,
                                         int stdout_fd, int stderr_fd) {
  if (Result<void> started = ensure_started(); !started)
    return started.error();
  std::array<int, 2> ends{};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0)
    return errno_error("socketpair");
  UniqueFd ours(ends[0]);
  UniqueFd theirs(ends[1]);
  ::fcntl(ours.get(), F_SETFL, O_NONBLOCK);
  const Json request{{"id", ++last_id_}, {"supervisor", ::getpid()}, {"environment", environment}};
  const std::array<int, 3> descriptors{theirs.get(), stdout_fd, stderr_fd};
  Result<void> sent = protocol::send_packet(control_.get(), protocol::encode(request), descriptors,
                                            Clock::now() + options_.fork_limit);
  Result<Json> answer =
      sent ? receive(options_.fork_limit, "fork a rank") : Result<Json>(lost("fork a rank"));
  if (!answer) {
    end();  // its answers can no longer be told from each other
    return answer.error();
  }
  if (answer->value("id", std::uint64_t{0}) != last_id_ || !answer->contains("pid"))
    return Error{Error::Kind::kHost,
                 "the warm parent could not fork: " + answer->value("error", std::string()), ""};
  return adopt((*answer)["pid"].get<std::int32_t>(), std::move(ours));
}

Result<ForkedHost> WarmParent::adopt(std::int32_t pid, UniqueFd conversation) const {
  Result<os::ProcessHandle> process = os::ProcessHandle::open(pid);
  if (!process)
    return process.error();
  const std::optional<os::ProcessStat> stat = os::read_process(pid);
  if (!stat || stat->parent != ::getpid()) {
    return Error{
        Error::Kind::kHost,
        fmt::format("the warm parent named process {} as the rank, which is no child of ours", pid),
        ""};
  }
  return ForkedHost{.process = std::move(*process), .conversation = std::move(conversation)};
}

}  // namespace lockstep::launch
