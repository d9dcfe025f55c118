// Goal: the frames of a waiting thread are read from outside, and the thread never notices: it is
// not left stopped, loses no signal and sees no error, even when the reader is killed at any
// instant.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <csignal>
#include <ctime>
#include <random>
#include <thread>

#include "harness/os/job.h"
#include "harness/os/poll_until.h"
#include "harness/os/proc.h"
#include "harness/os/stack_modules.h"
#include "harness/os/stack_sampler.h"
#include "harness/os/thread_snapshot.h"

namespace lockstep::os {

// Not static, and not inlined, so that there are frames to find.
__attribute__((noinline)) int wait_in_the_inner_function(int fd) {
  pollfd entry{.fd = fd, .events = POLLIN, .revents = 0};
  const int ready = ::poll(&entry, 1, -1);
  asm volatile("" ::: "memory");  // no tail call
  return ready;
}

__attribute__((noinline)) int wait_in_the_outer_function(int fd) {
  const int ready = wait_in_the_inner_function(fd);
  asm volatile("" ::: "memory");
  return ready;
}

namespace {

using Clock = std::chrono::steady_clock;
constexpr auto kLimit = std::chrono::seconds(10);

// A child that waits in poll() until told, then exits 0; 1 if the wait was disturbed.
class Sleeper {
 public:
  Sleeper() {
    std::array<int, 2> ends{};
    EXPECT_EQ(::pipe(ends.data()), 0);
    pid_ = ::fork();
    if (pid_ == 0) {
      ::close(ends[1]);
      ::_exit(wait_in_the_outer_function(ends[0]) == 1 ? 0 : 1);
    }
    ::close(ends[0]);
    wake_ = UniqueFd(ends[1]);
    process_ = *ProcessHandle::open(pid_);
    EXPECT_TRUE(waits_again());
  }
  ~Sleeper() {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, WNOHANG);
  }
  [[nodiscard]] pid_t pid() const { return pid_; }

  [[nodiscard]] bool waits_again() const {
    const auto deadline = Clock::now() + kLimit;
    while (!sleeps_in_restartable_wait(pid_, pid_) && Clock::now() < deadline)
      ::sched_yield();
    return sleeps_in_restartable_wait(pid_, pid_);
  }

  // Lets it go and tells whether it was undisturbed.
  bool wakes_well() {
    EXPECT_EQ(::write(wake_.get(), "w", 1), 1);
    return process_.wait_ended(Clock::now() + kLimit) && exited_zero();
  }

 private:
  bool exited_zero() {
    siginfo_t info{};
    return ::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED) == 0 && info.si_status == 0 &&
           info.si_code == CLD_EXITED;
  }
  pid_t pid_{};
  UniqueFd wake_;
  ProcessHandle process_;
};

std::size_t position_of(const std::vector<NativeFrame>& frames, const std::string& name) {
  const auto at = std::find_if(frames.begin(), frames.end(), [&](const NativeFrame& frame) {
    return frame.function.find(name) != std::string::npos;
  });
  return static_cast<std::size_t>(at - frames.begin());
}

// A thread that polls is asleep at every other look only.
TEST(StackModules, WhoPollsIsFoundAsleep) {
  constexpr auto kWorks = std::chrono::milliseconds(4);
  const pid_t child = ::fork();
  if (child == 0) {
    for (;;) {
      for (const auto until = Clock::now() + kWorks; Clock::now() < until;)
        continue;
      std::this_thread::sleep_for(kWorks);
    }
  }
  int most =
      0;  // Of 40 looks nearly all succeed, of single ones one half; fewer on a busy machine.
  for (int attempt = 0; attempt < 5 && most < 30; ++attempt) {
    int found = 0;
    for (int i = 0; i < 40; ++i) {
      found += modules_on_stack(child, child) ? 1 : 0;
      std::this_thread::sleep_for(std::chrono::milliseconds(3));
    }
    most = std::max(most, found);
  }
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  EXPECT_GE(most, 30);
}

/// Of a process that has nothing else on its stack: it was forked by a thread.
bool has_libelf_on_its_stack(std::uint64_t word) {
  pid_t child = -1;
  std::thread([&child, word] {
    child = ::fork();
    const volatile std::uint64_t on_stack = word;
    while (child == 0)
      std::this_thread::sleep_for(std::chrono::milliseconds(on_stack == 0 ? 50 : 60));
  }).join();
  std::optional<std::vector<std::string>> modules;
  for (int attempt = 0; attempt < 100 && (!modules || modules->empty()); ++attempt) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    modules = modules_on_stack(child, child);
  }
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  const auto has = [&](const char* name) {
    return modules && std::any_of(modules->begin(), modules->end(), [&](const std::string& path) {
             return path.find(name) != std::string::npos;
           });
  };
  EXPECT_TRUE(has("launch_process_tests")) << "whose code it is in";
  return has("libelf");
}

// Of a program that is mapped low, a number may be an address of its code.
TEST(StackModules, ANumberThatIsNoReturnAddressLeadsNowhere) {
  const auto function = reinterpret_cast<std::uint64_t>(::dlsym(RTLD_DEFAULT, "elf_errmsg"));
  ASSERT_NE(function, 0U);
  const auto* const code = reinterpret_cast<const std::uint8_t*>(function);
  std::uint64_t behind_call = 0;
  for (std::uint64_t i = 0; i < 200 && behind_call == 0; ++i) {
    if (code[i] == 0xe8)
      behind_call = function + i + 5;
  }
  ASSERT_NE(behind_call, 0U);
  EXPECT_FALSE(has_libelf_on_its_stack(0));
  EXPECT_FALSE(has_libelf_on_its_stack(function + 2));
  EXPECT_TRUE(has_libelf_on_its_stack(behind_call));
}

// From glibc 2.42 on the guard between two stacks is no mapping of its own.
TEST(StackModules, AStackEndsBeforeTheNextOneThatFollowsInItsMapping) {
  constexpr std::size_t kStack = std::size_t{256} << 10, kAll = std::size_t{4} << 20;
  void* const memory =
      ::mmap(nullptr, kAll, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  pthread_attr_t attributes;
  ASSERT_EQ(::pthread_attr_init(&attributes), 0);
  ASSERT_EQ(::pthread_attr_setstack(&attributes, memory, kStack), 0);
  struct Slept {
    std::atomic<pid_t> tid{};
    std::atomic<bool> enough{};
  } slept;
  pthread_t thread{};
  ASSERT_EQ(::pthread_create(
                &thread, &attributes,
                [](void* data) -> void* {
                  auto& its = *static_cast<Slept*>(data);
                  for (its.tid = ::gettid(); !its.enough;)
                    std::this_thread::sleep_for(std::chrono::milliseconds(20));
                  return nullptr;
                },
                &slept),
            0);
  std::optional<std::vector<std::string>> modules;
  for (int attempt = 0; attempt < 100 && (!modules || modules->empty()); ++attempt) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    if (slept.tid != 0)
      modules = modules_on_stack(::getpid(), slept.tid);
  }
  slept.enough = true;
  ::pthread_join(thread, nullptr);
  ::pthread_attr_destroy(&attributes);
  ::munmap(memory, kAll);
  ASSERT_TRUE(modules.has_value());
  EXPECT_TRUE(std::any_of(modules->begin(), modules->end(), [](const std::string& path) {
    return path.find("launch_process_tests") != std::string::npos;
  }));
}

TEST(StackSampler, FindsTheFramesOfAWait) {
  Sleeper sleeper;
  StackSampler sampler;
  for (int round = 0; round < 3; ++round) {
    const auto begin = Clock::now();
    const auto frames = sampler.sample(sleeper.pid(), sleeper.pid(), Clock::now() + kLimit);
    std::printf("sample %d: %.2f ms\n", round,
                std::chrono::duration<double, std::milli>(Clock::now() - begin).count());
    ASSERT_TRUE(frames.has_value()) << frames.error().what;
    const std::size_t inner = position_of(*frames, "wait_in_the_inner_function");
    const std::size_t outer = position_of(*frames, "wait_in_the_outer_function");
    ASSERT_LT(outer, frames->size());
    EXPECT_EQ(outer, inner + 1);
    EXPECT_LT(outer, position_of(*frames, "main"));
    EXPECT_EQ((*frames)[inner].function, "lockstep::os::wait_in_the_inner_function(int)");
    EXPECT_NE((*frames)[inner].module.find("launch_process_tests"), std::string::npos);
    EXPECT_GT((*frames)[inner].offset, 0U);
    EXPECT_TRUE(sleeper.waits_again()) << "and can be looked at once more";
  }
  EXPECT_TRUE(sleeper.wakes_well());
}

TEST(StackSampler, StopsTheThreadOnlyForAnInstant) {
  Sleeper sleeper;
  ThreadCopier copier;
  const auto begin = Clock::now();
  constexpr int kCopies = 50;
  for (int i = 0; i < kCopies; ++i)
    ASSERT_TRUE(copier.copy(sleeper.pid(), sleeper.pid(), Clock::now() + kLimit).has_value());
  const double each_ms =
      std::chrono::duration<double, std::milli>(Clock::now() - begin).count() / kCopies;
  std::printf("copy of one thread: %.3f ms\n", each_ms);
  EXPECT_LT(each_ms, 10.0);
  EXPECT_TRUE(sleeper.wakes_well());
}

TEST(StackSampler, NeverLeavesAThreadStoppedWhenItsReaderIsKilled) {
  Sleeper sleeper;
  std::mt19937 random(7);
  for (int round = 0; round < 30; ++round) {
    std::array<int, 2> ends{};
    ASSERT_EQ(::pipe(ends.data()), 0);
    const pid_t reader = ::fork();
    if (reader == 0) {
      ThreadCopier copier;
      for (bool told = false;;) {
        const bool copied =
            copier.copy(sleeper.pid(), sleeper.pid(), Clock::now() + kLimit).has_value();
        if (copied && !std::exchange(told, true)) [[maybe_unused]]
          const ssize_t put = ::write(ends[1], "c", 1);
      }
    }
    char copied = 0;
    ASSERT_EQ(::read(ends[0], &copied, 1), 1);
    for (auto spin = random() % 20'000; spin > 0; --spin)
      asm volatile("");
    ::kill(reader, SIGKILL);
    ::waitpid(reader, nullptr, 0);
    ASSERT_TRUE(sleeper.waits_again());
    ::close(ends[0]);
    ::close(ends[1]);
  }
  EXPECT_TRUE(sleeper.wakes_well());
}

TEST(StackSampler, DoesNotTakeTheExitStatusAway) {
  Sleeper sleeper;
  StackSampler sampler;
  ASSERT_TRUE(sampler.sample(sleeper.pid(), sleeper.pid(), Clock::now() + kLimit).has_value());
  Result<ProcessHandle> handle = ProcessHandle::open(sleeper.pid());
  ::kill(sleeper.pid(), SIGKILL);
  ASSERT_TRUE(handle->wait_ended(Clock::now() + kLimit));
  EXPECT_FALSE(sampler.sample(sleeper.pid(), sleeper.pid(), Clock::now() + kLimit).has_value());
  int status = 0;
  EXPECT_EQ(::waitpid(sleeper.pid(), &status, WNOHANG), sleeper.pid());
}

// A child whose threads come and go until it is told to leave, with status 7.
pid_t fork_short_lived_threads(int until) {
  const pid_t child = ::fork();
  if (child == 0) {
    pollfd entry{.fd = until, .events = POLLIN, .revents = 0};
    while (::poll(&entry, 1, 0) == 0) {
      std::thread thread([] {
        const timespec pause{.tv_sec = 0, .tv_nsec = 20'000};
        ::nanosleep(&pause, nullptr);
      });
      thread.join();
    }
    ::_exit(7);
  }
  return child;
}

// A thread that ends while it is held is a zombie until its tracer reaps it, and its process too.
TEST(StackSampler, KeepsNobodyFromEnding) {
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe(ends.data()), 0);
  const UniqueFd until(ends[0]);
  UniqueFd leave(ends[1]);
  const pid_t child = fork_short_lived_threads(until.get());
  Result<ProcessHandle> handle = ProcessHandle::open(child);
  ASSERT_TRUE(handle);
  ThreadCopier copier;
  std::size_t gone = 0;
  for (int round = 0; round < 4'000 && gone < 200; ++round) {
    for (const ThreadStat& thread : read_threads(child)) {
      if (thread.tid != child)
        gone += copier.copy(child, thread.tid, Clock::now() + kLimit).has_value() ? 0 : 1;
    }
  }
  EXPECT_GT(gone, 0U) << "no thread ended while it was looked at";
  ASSERT_EQ(::write(leave.get(), "l", 1), 1);
  const auto deadline = Clock::now() + kLimit;
  while (!handle->wait_ended(Clock::now() + std::chrono::milliseconds(10)) &&
         Clock::now() < deadline)
    copier.release();
  siginfo_t info{};
  ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOHANG), 0);
  ASSERT_EQ(info.si_pid, child);
  EXPECT_EQ(info.si_status, 7);
}

TEST(StackSampler, SaysSoWhenItMayNot) {
  Sleeper sleeper;
  // Somebody else traces it already: only one can.
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe(ends.data()), 0);
  const pid_t other = ::fork();
  if (other == 0) {
    ::ptrace(PTRACE_SEIZE, sleeper.pid(), nullptr, nullptr);
    [[maybe_unused]] const ssize_t put = ::write(ends[1], "s", 1);
    while (true)
      ::pause();
  }
  char seized = 0;
  ASSERT_EQ(::read(ends[0], &seized, 1), 1);
  StackSampler sampler;
  const auto frames = sampler.sample(sleeper.pid(), sleeper.pid(), Clock::now() + kLimit);
  ASSERT_FALSE(frames.has_value());
  EXPECT_EQ(frames.error().kind, Error::Kind::kEnvironment);
  EXPECT_NE(frames.error().what.find("cannot attach to"), std::string::npos) << frames.error().what;
  ::kill(other, SIGKILL);
  ::waitpid(other, nullptr, 0);
  EXPECT_TRUE(sleeper.wakes_well());
}

}  // namespace
}  // namespace lockstep::os
