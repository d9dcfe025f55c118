#include "harness/launch/interrupts.h"

#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdint>

#include "harness/base/check.h"
#include "harness/base/clock.h"
#include "harness/base/signal_name.h"

namespace lockstep::launch {
namespace {

constexpr std::array kSignals = {SIGINT, SIGTERM, SIGHUP};
constexpr std::uint64_t kTwinWindowNs = 250'000'000;

// A signal handler has nowhere else to keep what it knows. Lock-free, so it may touch them.
std::atomic<int> event_descriptor{-1};
std::atomic<pid_t> guard_pid{0};
std::atomic<int> count{0};
std::atomic<int> first{0};
std::atomic<std::uint64_t> first_ns{0};
std::atomic<bool> to_all{false};
// When a signal last came, by its number; 0: never.
std::array<std::atomic<std::uint64_t>, 32> last_ns{};

// A signal to the whole process group reaches us directly and through the guard, and timeout(1)
// sends one to the group and one to its child: one wish, not two. A key that is pressed twice is
// meant twice.
bool is_twin(int signal, const siginfo_t& info) {
  const std::uint64_t now = now_ns();
  const std::uint64_t before = last_ns[static_cast<std::size_t>(signal)].exchange(now);
  return info.si_code != SI_KERNEL && before != 0 && now - before < kTwinWindowNs;
}

void on_interrupt(int signal, siginfo_t* info, void*) {
  const int saved_errno = errno;
  if (info->si_code == SI_KERNEL || info->si_pid != guard_pid)
    to_all = true;
  if (!is_twin(signal, *info)) {
    if (++count == 1) {
      first_ns = now_ns();
      first = signal;
    } else if (guard_pid != 0) {
      ::_exit(kExitInterrupted);
    }
    const std::uint64_t one = 1;
    [[maybe_unused]] const ssize_t put = ::write(event_descriptor, &one, sizeof one);
  }
  errno = saved_errno;
}

}  // namespace

void take_interrupts(int event_fd, pid_t guard) {
  event_descriptor = event_fd;
  guard_pid = guard;
  struct sigaction action {};
  action.sa_sigaction = on_interrupt;
  action.sa_flags = SA_SIGINFO | SA_RESTART;
  ::sigemptyset(&action.sa_mask);
  for (const int signal : kSignals)
    ::sigaddset(&action.sa_mask, signal);
  for (const int signal : kSignals) {
    struct sigaction before {};
    LS_CHECK(::sigaction(signal, nullptr, &before) == 0);
    if (before.sa_handler != SIG_IGN)  // As under nohup, for us and for what we start.
      LS_CHECK(::sigaction(signal, &action, nullptr) == 0);
  }
}

void forget_guard() { guard_pid = 0; }

int interrupts_so_far() { return count; }

bool whole_group_was_interrupted() { return to_all; }

std::uint64_t first_interrupt_ns() { return first_ns; }

std::string first_interrupt() { return first == 0 ? "" : signal_name(first); }

}  // namespace lockstep::launch
