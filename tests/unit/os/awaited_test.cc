// Goal: whose lock, pipe, socket or end a process waits for is seen from outside.
#include "harness/os/awaited.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <semaphore.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <csignal>
#include <cstdio>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

#include "harness/base/unique_fd.h"
#include "harness/os/proc.h"

namespace lockstep::os {
namespace {

/// A process that does this and then nothing, until it is out of scope.
class Child {
 public:
  explicit Child(const std::function<void()>& work) : pid(::fork()) {
    if (pid == 0) {
      work();
      for (;;)
        ::pause();
    }
  }
  ~Child() {
    ::kill(pid, SIGKILL);
    ::waitpid(pid, nullptr, 0);
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  const std::int32_t pid;
};

bool comes_true(const std::function<bool()>& condition) {
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (std::chrono::steady_clock::now() < limit) {
    if (condition())
      return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return false;
}

using Pids = std::vector<std::int32_t>;

TEST(Awaited, AWaitThatOnlyThreadsOfTheProcessCanEnd) {
  const auto wait = [](bool for_ever) {
    std::mutex mutex;
    std::condition_variable condition;
    std::unique_lock lock(mutex);
    const auto never = [] { return false; };
    if (for_ever)
      condition.wait(lock, never);
    else
      condition.wait_for(lock, std::chrono::hours(1), never);
  };
  for (const bool for_ever : {false, true}) {
    const Child child([&] { wait(for_ever); });
    EXPECT_TRUE(comes_true([&] {
      const std::optional<OwnWait> own = waits_for_own_threads(child.pid, child.pid);
      return own && own->for_ever == for_ever;
    })) << for_ever;
  }
  const auto begun = std::chrono::steady_clock::now();
  const Child limited([&] { wait(false); });
  std::optional<OwnWait> own;
  ASSERT_TRUE(comes_true([&] {
    own = waits_for_own_threads(limited.pid, limited.pid);
    return own && own->until_ns;
  }));
  const std::chrono::nanoseconds until(*own->until_ns);
  EXPECT_GE(until, begun.time_since_epoch() + std::chrono::hours(1));
  EXPECT_LE(until, std::chrono::steady_clock::now().time_since_epoch() + std::chrono::hours(1));
  const Child with_others([] {
    void* const memory =
        ::mmap(nullptr, sizeof(sem_t), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ::sem_init(static_cast<sem_t*>(memory), /*pshared=*/1, 0);
    ::sem_wait(static_cast<sem_t*>(memory));
  });
  EXPECT_TRUE(comes_true([&] {
    return wait_channel(with_others.pid, with_others.pid).find("futex") != std::string::npos;
  }));
  EXPECT_FALSE(waits_for_own_threads(with_others.pid, with_others.pid));
}

TEST(Awaited, SignalsThatAProcessHasHandlersFor) {
  const Child child([] { ::signal(SIGUSR1, [](int) {}); });
  EXPECT_TRUE(
      comes_true([&] { return caught_signals(child.pid).value_or(0) >> (SIGUSR1 - 1) & 1; }));
  EXPECT_FALSE(caught_signals(child.pid).value_or(0) >> (SIGUSR2 - 1) & 1);
  EXPECT_FALSE(caught_signals(0));
}

TEST(Awaited, TheChildThatAProcessWaitsFor) {
  const Child parent([] {
    const pid_t child = ::fork();
    if (child == 0) {
      ::pause();
      ::_exit(0);
    }
    ::waitpid(child, nullptr, 0);
  });
  std::optional<std::int32_t> waits;
  ASSERT_TRUE(comes_true([&] { return (waits = waits_for_child(parent.pid)).has_value(); }));
  ASSERT_GT(*waits, 0);
  EXPECT_EQ(read_process(*waits)->parent, parent.pid);
  EXPECT_FALSE(waits_for_child(*waits));
  ::kill(*waits, SIGKILL);
}

TEST(Awaited, WhoHasTheLockOfAFile) {
  const std::string path = ::testing::TempDir() + "lockstep-awaited-" + std::to_string(::getpid());
  for (const bool posix : {false, true}) {
    const auto lock = [&] {
      const int file = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
      struct flock whole {};
      whole.l_type = F_WRLCK;
      return posix ? ::fcntl(file, F_SETLKW, &whole) : ::flock(file, LOCK_EX);
    };
    int ends[2];
    ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
    const UniqueFd told(ends[0]), tell(ends[1]);
    const Child owner([&] {
      if (lock() == 0 && ::write(tell.get(), "", 1) != 1)
        ::_exit(1);
    });
    char byte{};
    ASSERT_EQ(::read(told.get(), &byte, 1), 1);
    const Child waiter(lock), bystander([] {});
    const Pids others{bystander.pid, owner.pid};
    EXPECT_TRUE(comes_true([&] {
      return holders_of_what_it_waits_for(waiter.pid, others) == Pids{owner.pid};
    })) << (posix ? "fcntl" : "flock");
    EXPECT_EQ(holders_of_what_it_waits_for(waiter.pid, {bystander.pid}), Pids{});
    EXPECT_EQ(holders_of_what_it_waits_for(owner.pid, {waiter.pid}), Pids{});
  }
  std::remove(path.c_str());
}

TEST(Awaited, WhoHasTheOtherEndOfAPipe) {
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  UniqueFd reading(ends[0]), writing(ends[1]);
  const Child writer([&] { reading.reset(); });
  writing.reset();
  const Child other_reader([] {});
  const Child reader([&] {
    char byte{};
    if (::read(reading.get(), &byte, 1) != 1)
      ::_exit(1);
  });
  EXPECT_TRUE(comes_true([&] {
    return holders_of_what_it_waits_for(reader.pid, {other_reader.pid, writer.pid}) ==
           Pids{writer.pid};
  }));
}

TEST(Awaited, WhoHasTheOtherEndOfASocketOrOfWhatIsPolled) {
  for (const bool polls : {false, true}) {
    int ends[2], silent[2];
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    ASSERT_EQ(::pipe2(silent, O_CLOEXEC), 0);
    UniqueFd mine(ends[0]), theirs(ends[1]), reading(silent[0]), writing(silent[1]);
    const Child waiter([&] {
      theirs.reset();
      writing.reset();
      char byte{};
      pollfd both[]{{reading.get(), POLLIN, 0}, {mine.get(), POLLIN, 0}};
      if (polls ? ::poll(both, 2, 600'000) != 1 : ::read(mine.get(), &byte, 1) != 1)
        ::_exit(1);
    });
    mine.reset();
    const Child other([] {});
    theirs.reset();
    writing.reset();
    const Child bystander([&] { reading.reset(); });
    const auto told = [&] {
      return holders_of_what_it_waits_for(waiter.pid, {bystander.pid}).empty() &&
             holders_of_what_it_waits_for(waiter.pid, {bystander.pid, other.pid}) ==
                 Pids{other.pid};
    };
    EXPECT_TRUE(comes_true(told)) << (polls ? "poll" : "read");
    ::kill(waiter.pid, SIGSTOP);
    ASSERT_TRUE(comes_true([&] { return read_process(waiter.pid)->state == 'T'; }));
    ::kill(waiter.pid, SIGCONT);
    EXPECT_TRUE(comes_true(told)) << "after a stop, " << (polls ? "poll" : "read");
  }
}

}  // namespace
}  // namespace lockstep::os
