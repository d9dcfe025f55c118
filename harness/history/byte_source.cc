#include "harness/history/byte_source.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace lockstep::history {

Result<std::unique_ptr<FileSource>> FileSource::open(const std::string& path) {
  // Not blocking: a FIFO of that name must not hold the reader.
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0)
    return Error{Error::Kind::kIo, fmt::format("cannot read {}: {}", path, std::strerror(errno)),
                 ""};
  struct stat status {};
  if (fstat(fd, &status) != 0 || !S_ISREG(status.st_mode)) {
    ::close(fd);
    return Error{Error::Kind::kIo, fmt::format("cannot read {}: it is not a regular file", path),
                 ""};
  }
  return std::unique_ptr<FileSource>(new FileSource(fd));
}

FileSource::~FileSource() { ::close(fd_); }

std::uint64_t FileSource::size() {
  struct stat status {};
  return fstat(fd_, &status) == 0 ? static_cast<std::uint64_t>(status.st_size) : 0;
}

std::size_t FileSource::read(std::uint64_t offset, std::span<std::byte> into) {
  std::size_t done = 0;
  while (done < into.size()) {
    const ssize_t got =
        pread(fd_, into.data() + done, into.size() - done, static_cast<off_t>(offset + done));
    if (got < 0 && errno == EINTR)
      continue;
    if (got <= 0)
      break;
    done += static_cast<std::size_t>(got);
  }
  return done;
}

std::size_t MemorySource::read(std::uint64_t offset, std::span<std::byte> into) {
  if (offset >= bytes_.size() || into.empty())
    return 0;
  const std::size_t count = std::min<std::size_t>(into.size(), bytes_.size() - offset);
  std::memcpy(into.data(), bytes_.data() + offset, count);
  return count;
}

Result<std::string> read_whole(const std::string& path, std::uint64_t bytes_max) {
  auto source = FileSource::open(path);
  if (!source)
    return source.error();
  const std::uint64_t size = (*source)->size();
  if (size > bytes_max)
    return Error{Error::Kind::kMalformedHistory,
                 fmt::format("{} has {} bytes, at most {} are read", path, size, bytes_max), ""};
  std::string text(size, '\0');
  text.resize((*source)->read(0, std::as_writable_bytes(std::span(text))));
  return text;
}

}  // namespace lockstep::history
