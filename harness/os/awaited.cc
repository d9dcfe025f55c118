#include "harness/os/awaited.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

namespace lockstep::os {
namespace {

namespace fs = std::filesystem;

struct SystemCall {
  long number{-1};
  std::int32_t first{}, second{};
};

std::optional<SystemCall> system_call_of(std::int32_t pid) {
  std::ifstream file(fmt::format("/proc/{}/syscall", pid));
  SystemCall call;
  std::string first, second;
  if (!(file >> call.number >> first >> second))
    return std::nullopt;
  call.first = static_cast<std::int32_t>(std::strtoull(first.c_str(), nullptr, 16));
  call.second = static_cast<std::int32_t>(std::strtoull(second.c_str(), nullptr, 16));
  return call;
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

bool has_end_of_pipe(std::int32_t pid, const struct stat& pipe, bool for_writing) {
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
    if (mode == O_RDWR || (mode == O_WRONLY) == for_writing)
      return true;
  }
  return false;
}

}  // namespace

std::optional<std::int32_t> waits_for_child(std::int32_t pid) {
  const std::optional<SystemCall> call = system_call_of(pid);
  if (call && call->number == SYS_wait4)
    return std::max(call->first, -1);  // 0 and less than -1: any of a group.
  if (call && call->number == SYS_waitid)
    return call->first == P_PID ? call->second : -1;
  return std::nullopt;
}

std::vector<std::int32_t> holders_of_what_it_waits_for(std::int32_t pid,
                                                       const std::vector<std::int32_t>& others) {
  const std::optional<SystemCall> call = system_call_of(pid);
  struct stat awaited {};
  if (!call || ::stat(fmt::format("/proc/{}/fd/{}", pid, call->first).c_str(), &awaited) != 0)
    return {};
  std::vector<std::int32_t> holders;
  if (call->number == SYS_flock || call->number == SYS_fcntl) {
    holders = owners_of_locks(awaited.st_ino);
    std::erase_if(holders, [&](std::int32_t owner) {
      return std::find(others.begin(), others.end(), owner) == others.end();
    });
  }
  const bool reads = call->number == SYS_read || call->number == SYS_readv;
  const bool writes = call->number == SYS_write || call->number == SYS_writev;
  if (S_ISFIFO(awaited.st_mode) && (reads || writes)) {
    for (const std::int32_t other : others) {
      if (has_end_of_pipe(other, awaited, /*for_writing=*/reads))
        holders.push_back(other);
    }
  }
  return holders;
}

}  // namespace lockstep::os
