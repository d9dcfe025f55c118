#include "harness/history/run_files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <set>

#include "harness/base/unique_fd.h"

namespace fs = std::filesystem;

namespace lockstep::history {
namespace {

/// Copies what is not zero; the rest becomes a hole. Zero or an errno.
int copy_sparse(const std::string& from, const std::string& to) {
  const UniqueFd in(::open(from.c_str(), O_RDONLY | O_CLOEXEC));
  const UniqueFd out(::open(to.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
  if (!in || !out)
    return errno;
  static constexpr std::array<char, 16384> kZeros{};
  std::array<char, kZeros.size()> block;
  off_t at = 0;
  for (;;) {
    const ssize_t got = ::pread(in.get(), block.data(), block.size(), at);
    if (got < 0 && errno == EINTR)
      continue;
    if (got < 0)
      return errno;
    if (got == 0)
      break;
    const auto count = static_cast<std::size_t>(got);
    for (std::size_t done = 0;
         done < count && std::memcmp(block.data(), kZeros.data(), count) != 0;) {
      const ssize_t wrote =
          ::pwrite(out.get(), block.data() + done, count - done, at + static_cast<off_t>(done));
      if (wrote < 0 && errno == EINTR)
        continue;
      if (wrote <= 0)
        return wrote < 0 ? errno : ENOSPC;
      done += static_cast<std::size_t>(wrote);
    }
    at += got;
  }
  return ::ftruncate(out.get(), at) == 0 ? 0 : errno;
}

int move_file(const std::string& from, const std::string& to) {
  if (::rename(from.c_str(), to.c_str()) == 0)
    return 0;
  if (errno != EXDEV)
    return errno;
  const std::string temporary = to + ".tmp";
  int error = copy_sparse(from, temporary);
  if (error == 0 && ::rename(temporary.c_str(), to.c_str()) != 0)
    error = errno;
  if (error == 0)
    ::unlink(from.c_str());
  else
    ::unlink(temporary.c_str());
  return error;
}

}  // namespace

bool is_of_a_process(const std::string& file_name) {
  const fs::path extension = fs::path(file_name).extension();
  return extension == kHistory || extension == kWatched || extension == kUnseen ||
         extension == kLateDevices;
}

Result<void> move_files(const std::string& from, const std::string& to) {
  std::error_code error;
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(from, error)) {
    if (is_of_a_process(entry.path().filename()))
      names.push_back(entry.path().filename().string());
  }
  if (error)
    return Error{Error::Kind::kIo, fmt::format("cannot read {}: {}", from, error.message()), ""};
  for (const std::string& name : names) {
    const int failed = move_file(from + "/" + name, to + "/" + name);
    if (failed != 0)
      return Error{Error::Kind::kIo,
                   fmt::format("cannot move {} from {} to {}: {}; it was left there", name, from,
                               to, std::strerror(failed)),
                   "free some space; `lockstep check` finds the file where it is until the next "
                   "restart of the host"};
  }
  return {};
}

void remove_live_of(const std::string& run_directory) {
  std::error_code error;
  std::vector<fs::path> links;
  for (auto at = fs::recursive_directory_iterator(run_directory, error);
       !error && at != fs::end(at); at.increment(error)) {
    if (at->path().filename() == kLiveLink && at->is_symlink(error))
      links.push_back(at->path());
  }
  for (const fs::path& link : links) {
    const fs::path target = fs::read_symlink(link, error);
    struct stat status {};
    if (error || target.filename().string().rfind(kLivePrefix, 0) != 0 ||
        ::lstat(target.c_str(), &status) != 0 || !S_ISDIR(status.st_mode) ||
        status.st_uid != ::getuid())
      continue;
    fs::remove_all(target, error);
  }
}

std::vector<DeadLive> dead_live_directories() {
  const char* const temporary = std::getenv("TMPDIR");
  std::vector<DeadLive> dead;
  std::set<std::string> places{"/dev/shm", "/tmp", temporary == nullptr ? "/tmp" : temporary};
  for (const std::string& place : places) {
    std::error_code error;
    for (fs::directory_iterator at(place, error), end; !error && at != end; at.increment(error)) {
      const std::string path = at->path().string();
      struct stat status {};
      std::error_code not_ours;
      if (at->path().filename().string().rfind(kLivePrefix, 0) != 0 ||
          ::lstat(path.c_str(), &status) != 0 || !S_ISDIR(status.st_mode) ||
          status.st_uid != ::geteuid())
        continue;
      const fs::path history = fs::read_symlink(at->path() / kRunLink, not_ours);
      const UniqueFd lock(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
      if (!not_ours && lock && ::flock(lock.get(), LOCK_EX | LOCK_NB) == 0)
        dead.push_back({path, history.string()});
    }
  }
  return dead;
}

Result<void> take_back(const DeadLive& live) {
  std::error_code error;
  if (fs::is_directory(live.history, error)) {
    if (auto moved = move_files(live.path, live.history); !moved)
      return moved;
    const fs::path link = fs::path(live.history) / kLiveLink;
    if (fs::read_symlink(link, error) == live.path)
      fs::remove(link, error);
  }
  fs::remove_all(live.path, error);
  if (error)
    return Error{Error::Kind::kIo, fmt::format("cannot remove {}: {}", live.path, error.message()),
                 ""};
  return {};
}

}  // namespace lockstep::history
