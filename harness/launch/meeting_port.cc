#include "harness/launch/meeting_port.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <fstream>
#include <optional>
#include <random>
#include <string>

namespace lockstep::launch {
namespace {

constexpr int kFirstPort = 20'000;
constexpr int kAttempts = 100;

/// Itself if it is free; of 0 one that is.
std::optional<std::uint16_t> if_free(std::uint16_t port) {
  const UniqueFd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_ANY);
  address.sin_port = htons(port);
  socklen_t size = sizeof address;
  auto* const generic = reinterpret_cast<sockaddr*>(&address);
  if (!socket || ::bind(socket.get(), generic, size) != 0 ||
      ::getsockname(socket.get(), generic, &size) != 0)
    return std::nullopt;
  return ntohs(address.sin_port);
}

/// By a name that, as a port, is of one network namespace, and goes when its owner does. Nothing:
/// another lockstep has it. An empty one: there are no such names here.
std::optional<UniqueFd> claim(std::uint16_t port) {
  UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string name = fmt::format("lockstep-port-{}", port);
  name.copy(&address.sun_path[1], sizeof address.sun_path - 1);
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  if (socket && ::bind(socket.get(), reinterpret_cast<sockaddr*>(&address), size) == 0)
    return socket;
  return socket && errno == EADDRINUSE ? std::nullopt : std::optional<UniqueFd>(UniqueFd());
}

/// Wanted, or, of 0, any.
std::optional<MeetingPort> pick(std::uint16_t wanted) {
  const std::optional<std::uint16_t> number = if_free(wanted);
  std::optional<UniqueFd> claimed = number ? claim(*number) : std::nullopt;
  if (!claimed)
    return std::nullopt;
  return MeetingPort{*number, std::move(*claimed)};
}

}  // namespace

PortRange ports_to_meet_at() {
  int first_of_the_kernel = 0;
  std::ifstream("/proc/sys/net/ipv4/ip_local_port_range") >> first_of_the_kernel;
  return {kFirstPort, first_of_the_kernel - 1};
}

Result<MeetingPort> pick_meeting_port(PortRange range) {
  std::random_device random;
  for (int i = 0; i < kAttempts && range.first <= range.last; ++i) {
    std::uniform_int_distribution<int> any(range.first, range.last);
    if (std::optional<MeetingPort> port = pick(static_cast<std::uint16_t>(any(random))))
      return std::move(*port);
  }
  for (int i = 0; i < kAttempts; ++i) {
    if (std::optional<MeetingPort> port = pick(0))
      return std::move(*port);
  }
  return Error{Error::Kind::kEnvironment,
               fmt::format("cannot find a free TCP port: {}", std::strerror(errno)), ""};
}

}  // namespace lockstep::launch
