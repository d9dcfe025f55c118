// Goal: where a process listens and who is at the other end of a socket is seen from outside as it
// is.
#include "harness/os/sockets.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "harness/base/unique_fd.h"

namespace lockstep::os {
namespace {

template <typename Address>
UniqueFd bound(Address address, int family) {
  UniqueFd server(::socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int off = 0;
  if (family == AF_INET6) {
    EXPECT_EQ(::setsockopt(server.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off), 0);
  }
  EXPECT_EQ(::bind(server.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  return server;
}

sockaddr_in loopback(std::uint16_t port = 0) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(port);
  return address;
}

std::uint16_t port_of(const UniqueFd& socket) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  EXPECT_EQ(::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&address), &size), 0);
  return ntohs(address.ss_family == AF_INET6
                   ? reinterpret_cast<const sockaddr_in6&>(address).sin6_port
                   : reinterpret_cast<const sockaddr_in&>(address).sin_port);
}

std::uint64_t inode_of(const UniqueFd& socket) {
  struct stat status {};
  EXPECT_EQ(::fstat(socket.get(), &status), 0);
  return status.st_ino;
}

void expect_connected(const UniqueFd& one, const UniqueFd& other) {
  EXPECT_EQ(other_end_of_socket(::getpid(), inode_of(one)), inode_of(other));
  EXPECT_EQ(other_end_of_socket(::getpid(), inode_of(other)), inode_of(one));
}

TEST(Sockets, APortThatAProcessListensOn) {
  const UniqueFd server = bound(loopback(), AF_INET);
  EXPECT_TRUE(listening_on(::getpid()).empty()) << "bound, and not listening";
  ASSERT_EQ(::listen(server.get(), 1), 0);
  EXPECT_EQ(listening_on(::getpid()),
            std::vector<std::string>{fmt::format("127.0.0.1:{}", port_of(server))});
}

TEST(Sockets, TheOtherEndOfAPair) {
  int ends[2], bystanders[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, bystanders), 0);
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
  const UniqueFd one(ends[0]);
  UniqueFd other(ends[1]);
  const UniqueFd left(bystanders[0]), right(bystanders[1]);
  if (!other_end_of_socket(::getpid(), inode_of(one)))
    GTEST_SKIP() << "this kernel does not tell of Unix sockets";
  expect_connected(one, other);
  other.reset();
  EXPECT_EQ(other_end_of_socket(::getpid(), inode_of(one)), std::nullopt);
}

TEST(Sockets, TheOtherEndOfAConnection) {
  sockaddr_in6 any{};
  any.sin6_family = AF_INET6;
  any.sin6_addr = in6addr_any;
  for (const bool mapped : {false, true}) {
    const UniqueFd server = mapped ? bound(any, AF_INET6) : bound(loopback(), AF_INET);
    ASSERT_EQ(::listen(server.get(), 1), 0);
    EXPECT_EQ(other_end_of_socket(::getpid(), inode_of(server)), std::nullopt);
    const UniqueFd client(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const sockaddr_in to = loopback(port_of(server));
    ASSERT_EQ(::connect(client.get(), reinterpret_cast<const sockaddr*>(&to), sizeof to), 0);
    const UniqueFd accepted(::accept4(server.get(), nullptr, nullptr, SOCK_CLOEXEC));
    ASSERT_TRUE(accepted);
    expect_connected(client, accepted);
  }
}

TEST(Sockets, AConnectionWithinThisMachineIsToldWithWhoAccepted) {
  const UniqueFd server = bound(loopback(), AF_INET);
  ASSERT_EQ(::listen(server.get(), 1), 0);
  const UniqueFd client(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const sockaddr_in to = loopback(port_of(server));
  ASSERT_EQ(::connect(client.get(), reinterpret_cast<const sockaddr*>(&to), sizeof to), 0);
  const UniqueFd accepted(::accept4(server.get(), nullptr, nullptr, SOCK_CLOEXEC));
  ASSERT_TRUE(accepted);
  const std::vector<LocalConnection> found = local_connections({::getpid()});
  ASSERT_EQ(found.size(), 2U);
  for (const LocalConnection& one : found) {
    EXPECT_EQ(one.address, fmt::format("127.0.0.1:{}", port_of(server)));
    EXPECT_EQ(one.port, port_of(server));
    EXPECT_EQ(one.other_user, ::getuid());
    EXPECT_EQ(one.other_inode, inode_of(one.accepted ? client : accepted));
  }
  EXPECT_NE(found[0].accepted, found[1].accepted);
}

}  // namespace
}  // namespace lockstep::os
