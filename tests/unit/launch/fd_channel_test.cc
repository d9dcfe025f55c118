#include "harness/protocol/fd_channel.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <array>
#include <thread>

namespace lockstep::protocol {
namespace {

using Clock = std::chrono::steady_clock;

Deadline soon() { return Clock::now() + std::chrono::seconds(10); }

TEST(FdChannel, CarriesDescriptors) {
  Result<PacketPair> pair = make_packet_pair();
  ASSERT_TRUE(pair);
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe(ends.data()), 0);
  ASSERT_TRUE(send_packet(pair->ours.get(), "take this", std::array{ends[1]}, soon()));
  ::close(ends[1]);
  Result<std::optional<Packet>> packet = receive_packet(pair->theirs.get(), soon());
  ASSERT_TRUE(packet && *packet);
  EXPECT_EQ((*packet)->bytes, "take this");
  ASSERT_EQ((*packet)->descriptors.size(), 1U);
  EXPECT_NE(::fcntl((*packet)->descriptors[0].get(), F_GETFD) & FD_CLOEXEC, 0);
  ASSERT_EQ(::write((*packet)->descriptors[0].get(), "x", 1), 1);
  char got = 0;
  ASSERT_EQ(::read(ends[0], &got, 1), 1);
  EXPECT_EQ(got, 'x');
  ::close(ends[0]);
}

TEST(FdChannel, EndAndDeadlineAreDifferent) {
  Result<PacketPair> pair = make_packet_pair();
  const auto late = receive_packet(pair->ours.get(), Clock::now());
  ASSERT_FALSE(late);
  EXPECT_EQ(late.error().kind, Error::Kind::kTimeout);
  pair->theirs.reset();
  const auto ended = receive_packet(pair->ours.get(), soon());
  EXPECT_TRUE(ended && !*ended);
  EXPECT_FALSE(send_packet(pair->ours.get(), "x", {}, soon()).has_value());
  EXPECT_FALSE(
      send_packet(pair->ours.get(), std::string(kPacketBytesMax + 1, 'x'), {}, soon()).has_value());
}

TEST(LineChannel, LinesOfAnySizeBothWays) {
  std::array<int, 2> ends{};
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends.data()), 0);
  LineChannel a{UniqueFd(ends[0])};
  const std::string large(kLineBytesMax - 1, 'x');
  std::thread writer([&] {
    LineChannel b{UniqueFd(ends[1])};
    EXPECT_TRUE(b.write_line("first\nsecond\n", soon()));
    EXPECT_TRUE(b.write_line(large + "\n", soon()));
  });
  for (const std::string& expected : {std::string("first"), std::string("second"), large}) {
    const auto line = a.read_line(soon());
    ASSERT_TRUE(line && *line);
    EXPECT_EQ(**line, expected);
  }
  writer.join();
  const auto end = a.read_line(soon());
  EXPECT_TRUE(end && !*end);
}

}  // namespace
}  // namespace lockstep::protocol
