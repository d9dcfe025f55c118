// Goal: the port that ranks meet at is free, and stays so until rank 0 listens there.
#include "harness/launch/meeting_port.h"

#include <gtest/gtest.h>

#include <fstream>
#include <set>

namespace lockstep::launch {
namespace {

TEST(MeetingPort, IsNoneThatTheKernelGivesByItself) {
  int first = 0, last = 0;
  std::ifstream("/proc/sys/net/ipv4/ip_local_port_range") >> first >> last;
  if (first <= 20'000)
    GTEST_SKIP() << "the kernel gives ports from " << first << " on";
  std::set<std::uint16_t> ports;
  for (int i = 0; i < 100; ++i) {
    const Result<MeetingPort> port = pick_meeting_port();
    ASSERT_TRUE(port) << port.error().what;
    EXPECT_TRUE(port->number < first || port->number > last) << port->number;
    ports.insert(port->number);
  }
  EXPECT_GT(ports.size(), 50U) << "a job would often get the port of the one before it";
}

TEST(MeetingPort, IsOfOneJobUntilThatEnds) {
  Result<MeetingPort> first = pick_meeting_port();
  ASSERT_TRUE(first) << first.error().what;
  const PortRange only{first->number, first->number};
  const Result<MeetingPort> second = pick_meeting_port(only);
  ASSERT_TRUE(second) << second.error().what;
  EXPECT_NE(second->number, first->number) << "two jobs that start together meet each other";
  first->claim.reset();
  const Result<MeetingPort> third = pick_meeting_port(only);
  ASSERT_TRUE(third) << third.error().what;
  EXPECT_EQ(third->number, first->number);
}

}  // namespace
}  // namespace lockstep::launch
