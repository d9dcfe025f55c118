#include "harness/launch/rank_environment.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>
#include <charconv>
#include <cstring>
#include <fstream>
#include <random>

#include "harness/base/unique_fd.h"

namespace lockstep::launch {
namespace {

constexpr std::uint16_t kFirstPort = 20'000;
constexpr int kAttempts = 100;

/// From here on the kernel gives ports to whoever connects, or listens and does not say where.
std::uint16_t first_port_of_the_kernel() {
  std::uint16_t first = 0;
  std::ifstream("/proc/sys/net/ipv4/ip_local_port_range") >> first;
  return first;
}

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

}  // namespace

Result<std::uint16_t> free_port() {
  if (const std::uint16_t end = first_port_of_the_kernel(); end > kFirstPort) {
    std::random_device random;
    std::uniform_int_distribution<int> any(kFirstPort, end - 1);
    for (int i = 0; i < kAttempts; ++i) {
      if (const auto port = if_free(static_cast<std::uint16_t>(any(random))))
        return *port;
    }
  }
  if (const auto port = if_free(0))
    return *port;
  return Error{Error::Kind::kEnvironment,
               fmt::format("cannot find a free TCP port: {}", std::strerror(errno)), ""};
}

std::map<std::string, std::string> rank_environment(std::int32_t rank, std::int32_t world_size,
                                                    std::uint16_t port) {
  const std::string number = std::to_string(rank);
  const std::string size = std::to_string(world_size);
  return {{"RANK", number},
          {"LOCAL_RANK", number},
          {"WORLD_SIZE", size},
          {"LOCAL_WORLD_SIZE", size},
          {"MASTER_ADDR", "127.0.0.1"},
          {"MASTER_PORT", std::to_string(port)}};
}

std::optional<std::int32_t> told_number(std::int32_t pid, std::string_view name) {
  const std::optional<std::string> text = os::environment_value(pid, name);
  std::int32_t number = 0;
  if (!text || std::from_chars(text->data(), text->data() + text->size(), number).ec != std::errc())
    return std::nullopt;
  return number;
}

std::optional<Rank> told_rank(const os::ProcessStat& process) {
  const std::optional<std::int32_t> rank = told_number(process.id.pid, "RANK");
  if (!rank || *rank < 0 || told_number(process.parent, "RANK") == rank)
    return std::nullopt;
  return Rank{*rank};
}

}  // namespace lockstep::launch
