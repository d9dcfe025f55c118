// Goal: the port that ranks meet at is free, and stays so until rank 0 listens there.
#include "harness/launch/rank_environment.h"

#include <gtest/gtest.h>

#include <fstream>
#include <set>

namespace lockstep::launch {
namespace {

TEST(FreePort, IsNoneThatTheKernelGivesByItself) {
  int first = 0, last = 0;
  std::ifstream("/proc/sys/net/ipv4/ip_local_port_range") >> first >> last;
  if (first <= 20'000)
    GTEST_SKIP() << "the kernel gives ports from " << first << " on";
  std::set<std::uint16_t> ports;
  for (int i = 0; i < 100; ++i) {
    const Result<std::uint16_t> port = free_port();
    ASSERT_TRUE(port) << port.error().what;
    EXPECT_TRUE(*port < first || *port > last) << *port;
    ports.insert(*port);
  }
  EXPECT_GT(ports.size(), 50U) << "two jobs that start together would get the same";
}

}  // namespace
}  // namespace lockstep::launch
