// Writes the file of the watch (watch_format.h). One thread at a time; nothing throws, and a full
// disk loses records, never the program. A forked child has no file.
//
// Header-only, C++17, POSIX and Linux calls only.
#pragma once

#include "harness/history/watch_format.h"
#include "harness/history/writer_file.h"

#pragma GCC visibility push(hidden)

namespace lockstep::history {

class WatchWriter {
 public:
  /// Beside the history at `history`, whose extension it replaces. False: it cannot be written.
  bool open(const char* history) noexcept {
    const QuietCall quiet;
    char path[PATH_MAX];
    const std::size_t length = std::strlen(history);
    if (length < 4 || length >= sizeof path || std::strcmp(history + length - 4, ".lsh") != 0)
      return false;
    std::memcpy(path, history, length + 1);
    path[length - 1] = 'w';
    const int fd = ::open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0)
      return false;
    void* mapping = MAP_FAILED;
    if (WriterFile::reserve(fd, 0, kWatchBytes) == 0)
      mapping = mmap(nullptr, kWatchBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    ::close(fd);
    if (mapping == MAP_FAILED) {
      unlink(path);
      return false;
    }
    madvise(mapping, kWatchBytes, MADV_DONTFORK);
    base_ = static_cast<char*>(mapping);
    header_ = reinterpret_cast<WatchHeader*>(base_);
    pid_ = getpid();
    header_->version = kWatchVersion;
    header_->pid = pid_;
    header_->capacity = kWatchBytes;
    header_->used = sizeof(WatchHeader);
    __atomic_store_n(&header_->magic, kWatchMagic, __ATOMIC_RELEASE);
    return true;
  }

  /// Whether there is a file, and it is this process's.
  [[nodiscard]] bool writes() const noexcept { return header_ != nullptr && pid_ == getpid(); }
  /// For the counts in it.
  [[nodiscard]] WatchHeader& header() const noexcept { return *header_; }
  /// Of the room that there was.
  [[nodiscard]] double filled() const noexcept {
    return static_cast<double>(header_->used) / static_cast<double>(kWatchBytes);
  }

  /// Room for a record with this head; null if there is none, or it is dropped.
  template <class Record>
  Record* begin(WatchKind kind, std::size_t more_bytes) noexcept {
    const std::size_t bytes = (sizeof(Record) + more_bytes + 7) / 8 * 8;
    if (bytes > kWatchBytes - header_->used) {
      ++header_->dropped;
      return nullptr;
    }
    auto* const record = reinterpret_cast<Record*>(base_ + header_->used);
    std::memset(static_cast<void*>(record), 0, bytes);
    record->head = {kind, static_cast<std::uint32_t>(bytes)};
    return record;
  }
  /// The record is whole.
  template <class Record>
  void commit(const Record& record) noexcept {
    __atomic_store_n(&header_->used, header_->used + record.head.bytes, __ATOMIC_RELEASE);
  }

 private:
  char* base_ = nullptr;
  WatchHeader* header_ = nullptr;
  pid_t pid_ = 0;
};

}  // namespace lockstep::history

#pragma GCC visibility pop
