#include "harness/protocol/fd_channel.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

namespace lockstep::protocol {
namespace {

using Clock = std::chrono::steady_clock;

Error io_error(const char* what) {
  return {Error::Kind::kIo, std::string(what) + ": " + std::strerror(errno), ""};
}

// Waits until the descriptor can be read or written, or the other side is gone.
Result<void> await(int fd, short events, Deadline deadline, const char* what) {
  pollfd entry{.fd = fd, .events = events, .revents = 0};
  while (true) {
    int timeout_ms = -1;
    if (deadline != kNoDeadline) {
      const auto left =
          std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
      timeout_ms = static_cast<int>(std::clamp<std::int64_t>(left, 0, 3'600'000));
    }
    const int ready = ::poll(&entry, 1, timeout_ms);
    if (ready > 0)
      return {};
    if (ready < 0 && errno != EINTR)
      return io_error(what);
    if (deadline != kNoDeadline && Clock::now() >= deadline)
      return Error{Error::Kind::kTimeout, std::string(what) + ": no answer in time", ""};
  }
}

bool try_again() { return errno == EINTR || errno == EAGAIN || errno == EWOULDBLOCK; }

// Room for the descriptors of one packet, aligned as the kernel wants it.
struct ControlBuffer {
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int) * kPacketDescriptorsMax)> bytes{};
};

std::vector<UniqueFd> take_descriptors(msghdr& message) {
  std::vector<UniqueFd> descriptors;
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr;
       header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS)
      continue;
    const std::size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(header) + i * sizeof(int), sizeof fd);
      descriptors.emplace_back(fd);
    }
  }
  return descriptors;
}

}  // namespace

Result<PacketPair> make_packet_pair() {
  std::array<int, 2> ends{};
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()) != 0)
    return io_error("socketpair");
  return PacketPair{UniqueFd(ends[0]), UniqueFd(ends[1])};
}

Result<void> send_packet(int socket, std::string_view bytes, std::span<const int> descriptors,
                         Deadline deadline) {
  if (bytes.size() > kPacketBytesMax || descriptors.size() > kPacketDescriptorsMax)
    return Error{Error::Kind::kIo,
                 "a packet over its limits: " + std::to_string(bytes.size()) + " bytes", ""};
  iovec data{.iov_base = const_cast<char*>(bytes.data()), .iov_len = bytes.size()};
  ControlBuffer control;
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  if (!descriptors.empty()) {
    message.msg_control = control.bytes.data();
    message.msg_controllen = CMSG_SPACE(descriptors.size_bytes());
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(descriptors.size_bytes());
    std::memcpy(CMSG_DATA(header), descriptors.data(), descriptors.size_bytes());
  }
  while (::sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT) < 0) {
    if (!try_again())
      return io_error("send");
    if (Result<void> ready = await(socket, POLLOUT, deadline, "send"); !ready)
      return ready;
  }
  return {};
}

Result<std::optional<Packet>> receive_packet(int socket, Deadline deadline) {
  Packet packet;
  packet.bytes.resize(kPacketBytesMax);
  iovec data{.iov_base = packet.bytes.data(), .iov_len = packet.bytes.size()};
  ControlBuffer control;
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  while (true) {
    message.msg_control = control.bytes.data();
    message.msg_controllen = control.bytes.size();
    const ssize_t got = ::recvmsg(socket, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
    if (got >= 0) {
      packet.bytes.resize(static_cast<std::size_t>(got));
      break;
    }
    if (errno == ECONNRESET)
      return std::optional<Packet>();
    if (!try_again())
      return io_error("receive");
    if (Result<void> ready = await(socket, POLLIN, deadline, "receive"); !ready)
      return ready.error();
  }
  packet.descriptors = take_descriptors(message);
  if ((message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0)
    return Error{Error::Kind::kHost, "a packet that was cut off", ""};
  if (packet.bytes.empty())
    return std::optional<Packet>();
  return std::optional<Packet>(std::move(packet));
}

Result<std::optional<std::string>> LineChannel::read_line(Deadline deadline) {
  std::array<char, 65536> chunk{};
  while (lines_.empty()) {
    if (Result<void> ready = await(socket_.get(), POLLIN, deadline, "read"); !ready)
      return ready.error();
    const ssize_t got = ::recv(socket_.get(), chunk.data(), chunk.size(), MSG_DONTWAIT);
    if (got == 0 || (got < 0 && errno == ECONNRESET))
      return std::optional<std::string>();
    if (got < 0 && !try_again())
      return io_error("read");
    std::vector<std::string> lines;
    if (got > 0) {
      if (Result<void> split = buffer_.append({chunk.data(), static_cast<std::size_t>(got)}, lines);
          !split)
        return split.error();
    }
    std::move(lines.begin(), lines.end(), std::back_inserter(lines_));
  }
  std::optional<std::string> line(std::move(lines_.front()));
  lines_.pop_front();
  return line;
}

Result<void> LineChannel::write_line(std::string_view line, Deadline deadline) {
  while (!line.empty()) {
    const ssize_t put =
        ::send(socket_.get(), line.data(), line.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (put >= 0) {
      line.remove_prefix(static_cast<std::size_t>(put));
      continue;
    }
    if (!try_again())
      return io_error("write");
    if (Result<void> ready = await(socket_.get(), POLLOUT, deadline, "write"); !ready)
      return ready;
  }
  return {};
}

}  // namespace lockstep::protocol
