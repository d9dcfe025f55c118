// Two ways of talking over a Unix socket: packets that may carry descriptors (supervisor and warm
// parent), and lines (a rank host's side of the conversation of message.h).
#pragma once

#include <chrono>
#include <deque>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "harness/base/error.h"
#include "harness/base/unique_fd.h"
#include "harness/protocol/message.h"

namespace lockstep::protocol {

using Deadline = std::chrono::steady_clock::time_point;
inline constexpr Deadline kNoDeadline = Deadline::max();

inline constexpr std::size_t kPacketBytesMax = std::size_t{64} << 10;
inline constexpr std::size_t kPacketDescriptorsMax = 4;

struct Packet {
  std::string bytes{};
  std::vector<UniqueFd> descriptors{};
};

struct PacketPair {
  UniqueFd ours{}, theirs{};
};

/// A SOCK_SEQPACKET pair, both ends close-on-exec.
Result<PacketPair> make_packet_pair();

/// Errors: kTimeout; kIo when the other side is gone or the packet is over its limits.
Result<void> send_packet(int socket, std::string_view bytes, std::span<const int> descriptors,
                         Deadline deadline);

/// No value: the other side closed its end. Errors: kTimeout, kIo, kHost (truncated packet).
Result<std::optional<Packet>> receive_packet(int socket, Deadline deadline);

/// A rank host's side of the conversation. It waits in poll(2), never in read(2), so that a sample
/// taken from outside finds the thread in a wait that can be looked at without disturbing it.
class LineChannel {
 public:
  explicit LineChannel(UniqueFd socket) : socket_(std::move(socket)) {}

  /// The next line without its newline. No value: the other side closed its end.
  /// Errors: kHost (line too long), kTimeout, kIo.
  Result<std::optional<std::string>> read_line(Deadline deadline = kNoDeadline);

  /// Writes all of `line`, which ends with a newline (see encode()).
  Result<void> write_line(std::string_view line, Deadline deadline = kNoDeadline);

  [[nodiscard]] int fd() const { return socket_.get(); }

 private:
  UniqueFd socket_;
  LineBuffer buffer_{};
  std::deque<std::string> lines_{};
};

}  // namespace lockstep::protocol
