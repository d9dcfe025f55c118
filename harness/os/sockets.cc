#include "harness/os/sockets.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <ifaddrs.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <linux/sock_diag.h>
#include <linux/unix_diag.h>
#include <net/if.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <set>
#include <sstream>
#include <string_view>
#include <utility>

#include "harness/base/unique_fd.h"
#include "harness/os/kernel_objects.h"

namespace lockstep::os {
namespace {

constexpr std::string_view kEstablished = "01", kListening = "0A";

/// A row of /proc/PID/net/tcp or tcp6.
struct TcpSocket {
  std::string local{}, remote{}, state{};
  std::uint64_t inode{};
  std::uint32_t user{};
  std::string queues{}, timer{};  ///< "tx:rx", "kind:when", in hexadecimal digits.
  std::uint64_t tries{};
};

std::vector<TcpSocket> tcp_sockets(std::int32_t pid) {
  std::vector<TcpSocket> sockets;
  for (const char* const table : {"tcp", "tcp6"}) {
    std::ifstream file(fmt::format("/proc/{}/net/{}", pid, table));
    std::string line;
    std::getline(file, line);  // The titles.
    while (std::getline(file, line)) {
      std::istringstream fields(line);
      std::array<std::string, 10> field;
      for (std::string& each : field)
        fields >> each;
      sockets.push_back(
          {.local = field[1],
           .remote = field[2],
           .state = field[3],
           .inode = std::strtoull(field[9].c_str(), nullptr, 10),
           .user = static_cast<std::uint32_t>(std::strtoul(field[7].c_str(), nullptr, 10)),
           .queues = field[4],
           .timer = field[5],
           .tries = std::strtoull(field[6].c_str(), nullptr, 16)});
    }
  }
  return sockets;
}

// "0100007F:1F90": words of four bytes, each in the byte order of the host.
std::string in_words(const std::string& text) {
  const std::size_t colon = text.find(':');
  if (colon != 8 && colon != 32)
    return "";
  std::array<std::uint32_t, 4> words{};
  for (std::size_t i = 0; i < colon / 8; ++i)
    words[i] = static_cast<std::uint32_t>(std::strtoul(text.substr(i * 8, 8).c_str(), nullptr, 16));
  std::array<char, INET6_ADDRSTRLEN> name{};
  const int family = colon == 8 ? AF_INET : AF_INET6;
  if (::inet_ntop(family, words.data(), name.data(), name.size()) == nullptr)
    return "";
  const unsigned long port = std::strtoul(text.c_str() + colon + 1, nullptr, 16);
  return colon == 8 ? fmt::format("{}:{}", name.data(), port)
                    : fmt::format("[{}]:{}", name.data(), port);
}

/// One end may call an address of IPv4 what the other calls one of IPv6.
std::string_view without_mapping(std::string_view address) {
  constexpr std::string_view kMapped = "0000000000000000FFFF0000";
  if (address.substr(0, kMapped.size()) == kMapped)
    address.remove_prefix(kMapped.size());
  return address;
}

std::optional<std::uint64_t> other_end_of_tcp(std::int32_t pid, std::uint64_t inode) {
  const std::vector<TcpSocket> sockets = tcp_sockets(pid);
  for (const TcpSocket& one : sockets) {
    if (one.inode != inode)
      continue;
    for (const TcpSocket& other : sockets) {
      if (other.inode != 0 && other.inode != inode &&
          without_mapping(one.local) == without_mapping(other.remote) &&
          without_mapping(one.remote) == without_mapping(other.local))
        return other.inode;
    }
  }
  return std::nullopt;
}

std::string port_of(const std::string& address) { return address.substr(address.find(':') + 1); }

class TcpTable {
 public:
  TcpTable() = default;
  explicit TcpTable(std::vector<TcpSocket> sockets) : sockets_(std::move(sockets)) {
    for (const TcpSocket& socket : sockets_) {
      if (socket.state == kEstablished && socket.inode != 0)
        by_ends_[{without_mapping(socket.local), without_mapping(socket.remote)}] = &socket;
    }
  }

  void add_connections_of(std::int32_t pid, std::vector<LocalConnection>& found) const {
    const std::vector<std::string> targets = descriptor_targets(pid);
    const std::set<std::string_view> open(targets.begin(), targets.end());
    std::vector<const TcpSocket*> own;
    std::set<std::string> listens;  // On these ports.
    for (const TcpSocket& socket : sockets_) {
      if (!open.contains(fmt::format("socket:[{}]", socket.inode)))
        continue;
      if (socket.state == kListening)
        listens.insert(port_of(socket.local));
      else if (socket.state == kEstablished)
        own.push_back(&socket);
    }
    for (const TcpSocket* const socket : own) {
      const auto other =
          by_ends_.find({without_mapping(socket->remote), without_mapping(socket->local)});
      if (other == by_ends_.end() || other->second == socket)
        continue;
      const bool accepted = listens.contains(port_of(socket->local));
      const std::string asked(without_mapping(accepted ? socket->local : socket->remote));
      found.push_back(
          {.pid = pid,
           .address = in_words(asked),
           .port = static_cast<std::uint16_t>(std::strtoul(port_of(asked).c_str(), nullptr, 16)),
           .accepted = accepted,
           .other_inode = other->second->inode,
           .other_user = other->second->user});
    }
  }

 private:
  std::vector<TcpSocket> sockets_{};
  std::map<std::pair<std::string_view, std::string_view>, const TcpSocket*> by_ends_{};
};

/// sock_diag(7); of this network namespace.
std::optional<std::uint64_t> other_end_of_unix(std::uint64_t inode) {
  struct {
    nlmsghdr header;
    unix_diag_req body;
  } request{};
  request.header.nlmsg_len = sizeof request;
  request.header.nlmsg_type = SOCK_DIAG_BY_FAMILY;
  request.header.nlmsg_flags = NLM_F_REQUEST;
  request.body.sdiag_family = AF_UNIX;
  request.body.udiag_states = ~0U;
  request.body.udiag_ino = static_cast<std::uint32_t>(inode);
  request.body.udiag_show = UDIAG_SHOW_PEER;
  request.body.udiag_cookie[0] = request.body.udiag_cookie[1] = ~0U;
  const UniqueFd kernel(::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG));
  alignas(nlmsghdr) std::array<char, 1024> answer{};
  if (!kernel || ::send(kernel.get(), &request, sizeof request, 0) != sizeof request)
    return std::nullopt;
  auto left = static_cast<unsigned>(
      std::max<ssize_t>(::recv(kernel.get(), answer.data(), answer.size(), MSG_DONTWAIT), 0));
  const auto* const header = reinterpret_cast<const nlmsghdr*>(answer.data());
  if (!NLMSG_OK(header, left) || header->nlmsg_type != SOCK_DIAG_BY_FAMILY)
    return std::nullopt;
  const char* const body = static_cast<const char*>(NLMSG_DATA(header));
  left = static_cast<unsigned>(NLMSG_PAYLOAD(header, sizeof(unix_diag_msg)));
  const auto* attribute =
      reinterpret_cast<const rtattr*>(body + NLMSG_ALIGN(sizeof(unix_diag_msg)));
  for (; RTA_OK(attribute, left); attribute = RTA_NEXT(attribute, left)) {
    if (attribute->rta_type != UNIX_DIAG_PEER)
      continue;
    std::uint32_t peer = 0;
    std::memcpy(&peer, RTA_DATA(attribute), sizeof peer);
    if (peer != 0)
      return peer;
  }
  return std::nullopt;
}

}  // namespace

std::vector<std::string> listening_on(std::int32_t pid) {
  const std::vector<std::string> targets = descriptor_targets(pid);
  const std::set<std::string> open(targets.begin(), targets.end());
  std::set<std::string> found;
  for (const TcpSocket& socket : tcp_sockets(pid)) {
    if (socket.state == kListening && open.contains(fmt::format("socket:[{}]", socket.inode)))
      found.insert(in_words(socket.local));
  }
  return {found.begin(), found.end()};
}

std::vector<UnacknowledgedBytes> unacknowledged(std::int32_t pid) {
  constexpr std::string_view kRetransmits = "01:";
  const std::vector<std::string> targets = descriptor_targets(pid);
  const std::set<std::string> open(targets.begin(), targets.end());
  std::vector<UnacknowledgedBytes> found;
  for (const TcpSocket& socket : tcp_sockets(pid)) {
    if (socket.state != kEstablished || socket.tries == 0 ||
        !socket.timer.starts_with(kRetransmits) ||
        !open.contains(fmt::format("socket:[{}]", socket.inode)))
      continue;
    found.push_back({.address = in_words(std::string(without_mapping(socket.remote))),
                     .bytes = std::strtoull(socket.queues.c_str(), nullptr, 16),
                     .tries = socket.tries});
  }
  return found;
}

std::vector<std::string> own_addresses() {
  std::vector<std::string> addresses;
  ifaddrs* all = nullptr;
  if (::getifaddrs(&all) != 0)
    return addresses;
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owned(all, ::freeifaddrs);
  for (const ifaddrs* at = all; at != nullptr; at = at->ifa_next) {
    if (at->ifa_addr == nullptr || (at->ifa_flags & IFF_LOOPBACK) != 0)
      continue;
    std::array<char, INET6_ADDRSTRLEN> name{};
    const void* const address =
        at->ifa_addr->sa_family == AF_INET
            ? static_cast<const void*>(
                  &reinterpret_cast<const sockaddr_in*>(at->ifa_addr)->sin_addr)
        : at->ifa_addr->sa_family == AF_INET6
            ? &reinterpret_cast<const sockaddr_in6*>(at->ifa_addr)->sin6_addr
            : nullptr;
    if (address != nullptr &&
        ::inet_ntop(at->ifa_addr->sa_family, address, name.data(), name.size()) != nullptr)
      addresses.emplace_back(name.data());
  }
  return addresses;
}

std::vector<LocalConnection> local_connections(const std::vector<std::int32_t>& pids) {
  std::map<std::string, TcpTable> tables;  // By network namespace.
  std::vector<LocalConnection> found;
  for (const std::int32_t pid : pids) {
    std::error_code ignored;
    const std::string space =
        std::filesystem::read_symlink(fmt::format("/proc/{}/ns/net", pid), ignored);
    const auto [table, is_new] = tables.try_emplace(space);
    if (is_new)
      table->second = TcpTable(tcp_sockets(pid));
    table->second.add_connections_of(pid, found);
  }
  return found;
}

std::optional<std::uint64_t> other_end_of_socket(std::int32_t pid, std::uint64_t inode) {
  const std::optional<std::uint64_t> other = other_end_of_unix(inode);
  return other ? other : other_end_of_tcp(pid, inode);
}

}  // namespace lockstep::os
