#include "harness/os/awaited.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/futex.h>
#include <poll.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>

#include "harness/base/clock.h"
#include "harness/os/kernel_objects.h"
#include "harness/os/proc.h"
#include "harness/os/process_memory.h"
#include "harness/os/sockets.h"

namespace lockstep::os {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kPolledMax = 16;

struct SystemCall {
  long number{-1};
  std::array<std::uint64_t, 4> arguments{};
  [[nodiscard]] std::int32_t number_at(std::size_t i) const {
    return static_cast<std::int32_t>(arguments[i]);
  }
};

std::optional<SystemCall> system_call_of(std::int32_t pid, std::int32_t tid) {
  std::ifstream file(fmt::format("/proc/{}/task/{}/syscall", pid, tid));
  SystemCall call;
  if (!(file >> call.number))
    return std::nullopt;
  for (std::uint64_t& argument : call.arguments) {
    std::string text;
    if (!(file >> text))
      return std::nullopt;
    argument = std::strtoull(text.c_str(), nullptr, 16);
  }
  return call;
}

// Of futex(2).
constexpr std::size_t kOperation = 1, kTimeout = 3;

std::int64_t in_ns(const timespec& time) { return time.tv_sec * 1'000'000'000LL + time.tv_nsec; }

/// When the wait for a condition ends that has a limit: it is given as an instant.
std::optional<std::uint64_t> end_of_futex_wait(std::int32_t pid, const SystemCall& call) {
  timespec until{};
  const int operation = call.number_at(kOperation);
  if ((operation & FUTEX_CMD_MASK) != FUTEX_WAIT_BITSET ||
      !read_memory(pid, call.arguments[kTimeout], &until, sizeof until))
    return std::nullopt;
  std::int64_t at_ns = in_ns(until);
  if ((operation & FUTEX_CLOCK_REALTIME) != 0) {
    timespec now{};
    ::clock_gettime(CLOCK_REALTIME, &now);
    at_ns -= in_ns(now) - static_cast<std::int64_t>(now_ns());
  }
  return at_ns < 0 ? std::nullopt : std::optional<std::uint64_t>(at_ns);
}

struct Awaited {
  std::int32_t descriptor{};
  bool reads{}, writes{};
};

/// What poll(2) was asked for.
std::vector<Awaited> polled_by(std::int32_t pid, const SystemCall& call) {
  std::vector<pollfd> asked(std::min<std::size_t>(call.arguments[1], kPolledMax));
  if (!read_memory(pid, call.arguments[0], asked.data(), asked.size() * sizeof(pollfd)))
    return {};
  std::vector<Awaited> awaited;
  for (const pollfd& one : asked)
    awaited.push_back({one.fd, (one.events & POLLIN) != 0, (one.events & POLLOUT) != 0});
  return awaited;
}

std::vector<Awaited> awaited_by(std::int32_t pid, const SystemCall& call) {
  switch (call.number) {
    case SYS_read:
    case SYS_readv:
    case SYS_recvfrom:
    case SYS_recvmsg:
      return {{call.number_at(0), true, false}};
    case SYS_write:
    case SYS_writev:
    case SYS_sendto:
    case SYS_sendmsg:
      return {{call.number_at(0), false, true}};
    case SYS_poll:
    case SYS_ppoll:
      return polled_by(pid, call);
    case SYS_restart_syscall:  // So poll(2) goes on after a stop; its arguments are still there.
      return wait_channel(pid, pid).find("poll") == std::string::npos ? std::vector<Awaited>()
                                                                      : polled_by(pid, call);
    default:
      return {};
  }
}

bool stat_of(std::int32_t pid, std::int32_t descriptor, struct stat& status) {
  return ::stat(fmt::format("/proc/{}/fd/{}", pid, descriptor).c_str(), &status) == 0;
}

/// Of the locks on a file those that are held, not those that are waited for: "1: FLOCK ADVISORY
/// WRITE 3568 fd:00:2531452 0 EOF".
std::vector<std::int32_t> owners_of_locks(ino_t inode) {
  std::vector<std::int32_t> owners;
  std::ifstream file("/proc/locks");
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string number, kind, advisory, mode, place;
    std::int32_t pid = 0;
    if (!(words >> number >> kind >> advisory >> mode >> pid >> place) || kind == "->")
      continue;
    if (place.substr(place.rfind(':') + 1) == std::to_string(inode))
      owners.push_back(pid);
  }
  return owners;
}

bool has_end_of_pipe(std::int32_t pid, const struct stat& pipe, const Awaited& awaited) {
  std::error_code error;
  for (fs::directory_iterator at(fmt::format("/proc/{}/fd", pid), error), end; !error && at != end;
       at.increment(error)) {
    struct stat status {};
    if (::stat(at->path().c_str(), &status) != 0 || status.st_ino != pipe.st_ino ||
        status.st_dev != pipe.st_dev)
      continue;
    std::ifstream file(fmt::format("/proc/{}/fdinfo/{}", pid, at->path().filename().string()));
    std::string field, flags;
    while (file >> field && field != "flags:")
      file >> flags;
    file >> flags;
    const auto mode = std::strtoul(flags.c_str(), nullptr, 8) & O_ACCMODE;
    if (mode == O_RDWR || (mode == O_WRONLY && awaited.reads) ||
        (mode == O_RDONLY && awaited.writes))
      return true;
  }
  return false;
}

bool has_descriptor(std::int32_t pid, const std::string& target) {
  const std::vector<std::string> targets = descriptor_targets(pid);
  return std::find(targets.begin(), targets.end(), target) != targets.end();
}

std::vector<std::int32_t> holders_of_other_end(std::int32_t pid, const Awaited& awaited,
                                               const std::vector<std::int32_t>& others) {
  std::vector<std::int32_t> holders;
  struct stat status {};
  if (!stat_of(pid, awaited.descriptor, status))
    return holders;
  if (S_ISFIFO(status.st_mode)) {
    std::copy_if(others.begin(), others.end(), std::back_inserter(holders),
                 [&](std::int32_t other) { return has_end_of_pipe(other, status, awaited); });
  } else if (S_ISSOCK(status.st_mode)) {
    if (const auto end = other_end_of_socket(pid, status.st_ino)) {
      const std::string target = fmt::format("socket:[{}]", *end);
      std::copy_if(others.begin(), others.end(), std::back_inserter(holders),
                   [&](std::int32_t other) { return has_descriptor(other, target); });
    }
  }
  return holders;
}

}  // namespace

std::optional<std::int32_t> waits_for_child(std::int32_t pid) {
  const std::optional<SystemCall> call = system_call_of(pid, pid);
  if (call && call->number == SYS_wait4)
    return std::max(call->number_at(0), -1);  // 0 and less than -1: any of a group.
  if (call && call->number == SYS_waitid)
    return call->number_at(0) == P_PID ? call->number_at(1) : -1;
  return std::nullopt;
}

std::optional<OwnWait> waits_for_own_threads(std::int32_t pid, std::int32_t tid) {
  const std::optional<SystemCall> call = system_call_of(pid, tid);
  const bool in_futex = call && (call->number == SYS_futex ||
                                 (call->number == SYS_restart_syscall &&
                                  wait_channel(pid, tid).find("futex") != std::string::npos));
  if (!in_futex || (call->number_at(kOperation) & FUTEX_PRIVATE_FLAG) == 0)
    return std::nullopt;
  if (call->arguments[kTimeout] == 0)
    return OwnWait{.for_ever = true};
  return OwnWait{.until_ns = end_of_futex_wait(pid, *call)};
}

std::vector<std::int32_t> holders_of_what_it_waits_for(std::int32_t pid,
                                                       const std::vector<std::int32_t>& others) {
  const std::optional<SystemCall> call = system_call_of(pid, pid);
  if (!call)
    return {};
  std::vector<std::int32_t> holders;
  if (struct stat file{}; (call->number == SYS_flock || call->number == SYS_fcntl) &&
                          stat_of(pid, call->number_at(0), file)) {
    holders = owners_of_locks(file.st_ino);
    std::erase_if(holders, [&](std::int32_t owner) {
      return std::find(others.begin(), others.end(), owner) == others.end();
    });
  }
  for (const Awaited& awaited : awaited_by(pid, *call)) {
    for (const std::int32_t holder : holders_of_other_end(pid, awaited, others))
      holders.push_back(holder);
  }
  std::sort(holders.begin(), holders.end());
  holders.erase(std::unique(holders.begin(), holders.end()), holders.end());
  return holders;
}

}  // namespace lockstep::os
