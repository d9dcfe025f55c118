#include "harness/launch/host_process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <array>
#include <cerrno>
#include <cstring>

namespace lockstep::launch {

Result<LogFile> LogFile::create(const std::string& path, std::uint64_t bytes_max) {
  // Appending, so that writers go on at the end after a cut.
  UniqueFd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0666));
  if (!fd)
    return Error{Error::Kind::kIo, fmt::format("cannot write {}: {}", path, std::strerror(errno)),
                 ""};
  return LogFile(path, std::move(fd), bytes_max);
}

bool LogFile::bound() {
  struct stat info {};
  if (::fstat(fd_.get(), &info) != 0 || static_cast<std::uint64_t>(info.st_size) <= bytes_max_)
    return false;
  if (::ftruncate(fd_.get(), static_cast<off_t>(bytes_max_)) != 0)
    return false;
  return !std::exchange(cut_, true);
}

void Conversation::finish() {
  if (!std::exchange(finished_, true))
    closed_at_ = std::chrono::steady_clock::now();
  output_.clear();
}

void Conversation::write_some() {
  while (!output_.empty()) {
    const ssize_t put =
        ::send(socket_.get(), output_.data(), output_.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (put < 0 && errno == EINTR)
      continue;
    if (put < 0) {
      // Nobody reads any more: what was said before is still to be read, and the process's end is
      // its pidfd.
      if (errno != EAGAIN && errno != EWOULDBLOCK)
        output_.clear();
      return;
    }
    output_.erase(0, static_cast<std::size_t>(put));
  }
}

Result<bool> Conversation::read_some(std::vector<std::string>& lines) {
  std::array<char, 65536> chunk;
  if (finished_)
    return false;
  const ssize_t got = ::recv(socket_.get(), chunk.data(), chunk.size(), MSG_DONTWAIT);
  if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR))
    return errno == EINTR;
  if (got <= 0) {
    finish();
    return false;
  }
  if (Result<void> split = input_.append({chunk.data(), static_cast<std::size_t>(got)}, lines);
      !split) {
    finish();
    closed_at_.reset();
    return split.error();
  }
  return true;
}

}  // namespace lockstep::launch
