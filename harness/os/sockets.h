// Sockets of a process, seen from outside: where it listens, and who is at the other end.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace lockstep::os {

/// "127.0.0.1:29500", "[::]:29500": where a process listens (TCP). A connection in TIME_WAIT has no
/// process and is not here.
std::vector<std::string> listening_on(std::int32_t pid);

/// The inode of the other end of the connected socket with this inode that `pid` has: TCP within
/// this machine, or a Unix socket. None where it is somewhere else, gone, or not told.
std::optional<std::uint64_t> other_end_of_socket(std::int32_t pid, std::uint64_t inode);

/// An established connection (TCP) of a process, whose other end is on this machine as well.
struct LocalConnection {
  std::int32_t pid{};
  std::string address{};        ///< Where it was asked for: "127.0.0.1:29500".
  std::uint16_t port{};         ///< Of that.
  bool accepted{};              ///< By this process, which listens there.
  std::uint64_t other_inode{};  ///< Of the other end, which somebody has,
  std::uint32_t other_user{};   ///< and that is whose.
};
/// Those of several processes, whose tables are read once: they are long on a host with many.
std::vector<LocalConnection> local_connections(const std::vector<std::int32_t>& pids);

/// What a process has sent over a connection (TCP) that the other end has not acknowledged, though
/// it was sent again.
struct UnacknowledgedBytes {
  std::string address{};  ///< Of the other end: "10.9.0.2:4711".
  std::uint64_t bytes{};
  std::uint64_t tries{};  ///< How often it was sent again, since something was acknowledged.
};
std::vector<UnacknowledgedBytes> unacknowledged(std::int32_t pid);

/// Of the interfaces of this network namespace, but for loopback: "10.9.0.1".
std::vector<std::string> own_addresses();

}  // namespace lockstep::os
