// The mapped file under a Writer: created, given space, grown, unmapped. Space is reserved before
// it is touched, because a store to a page that a full disk cannot back is SIGBUS in the user's
// program.
//
// Header-only, C++17, POSIX and Linux calls only; nothing throws, nothing allocates from the heap,
// errno is the caller's to keep. No descriptor stays open: a program that closes all of them must
// not matter to us, nor may we later grow a file of the user's that got the same number.
#pragma once

#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "harness/history/format.h"

#pragma GCC visibility push(hidden)  // Nothing of the writer is exported from the user's process.

namespace lockstep::history {

/// Nanoseconds of CLOCK_MONOTONIC or CLOCK_REALTIME.
inline std::uint64_t clock_ns(clockid_t clock) noexcept {
  timespec now{};
  clock_gettime(clock, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000U +
         static_cast<std::uint64_t>(now.tv_nsec);
}

/// The user's program must find errno as it was, and no call of ours may be where its thread is
/// cancelled.
class QuietCall {
 public:
  QuietCall() noexcept { pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel_); }
  ~QuietCall() {
    pthread_setcancelstate(cancel_, nullptr);
    errno = errno_;
  }
  QuietCall(const QuietCall&) = delete;
  QuietCall& operator=(const QuietCall&) = delete;

 private:
  int errno_ = errno;
  int cancel_ = 0;
};

/// What a Writer is told when it is opened.
struct WriterOptions {
  const char* directory = nullptr;  ///< Exists. Also for the files of forked children.
  std::uint64_t file_bytes = kDefaultFileBytes;
  std::int32_t rank = -1;  ///< Global rank, if already known; else Writer::set_rank.
  std::int32_t world_size = 0;
  const char* torch_version = "";
  std::uint64_t capabilities = 0;
  bool at_first_group = false;  ///< No file before there is something to write.
};

class WriterFile {
 public:
  static constexpr std::uint32_t kGroupsMax = 512;
  static constexpr std::uint64_t kStepSlots = 8192;  ///< The ring grows by 1 MiB.
  static constexpr std::uint64_t kFileBytesMin = 2U << 20;

  static std::uint64_t definitions_bytes(std::uint64_t file_bytes) noexcept {
    return (file_bytes < kFileBytesMin ? kFileBytesMin : file_bytes) / 32 / 4096 * 4096;
  }

  WriterFile() = default;
  WriterFile(const WriterFile&) = delete;
  WriterFile& operator=(const WriterFile&) = delete;
  ~WriterFile() { unmap(); }

  FileHeader* header = nullptr;
  char* base = nullptr;

  /// Creates and maps the file. False: not even a header can be written, nothing is left behind.
  bool create(const WriterOptions& options) noexcept {
    char identity[PATH_MAX];
    if (!name_file(options.directory, identity))
      return false;
    const int fd = open(path_, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0)
      return false;
    FileHeader plan{};
    fill(plan, options);
    const bool complete = reserve(fd, 0, plan.ring_offset + kStepSlots * sizeof(Slot)) == 0;
    mapped_bytes_ =
        complete ? plan.ring_offset + plan.ring_capacity * sizeof(Slot) : sizeof(FileHeader);
    struct stat status {};
    bool good = complete || (ftruncate(fd, 0) == 0 && reserve(fd, 0, sizeof(FileHeader)) == 0);
    if (good && !complete)
      plan.definitions_bytes = plan.groups_capacity = plan.digests_capacity =
          plan.pending_capacity = plan.ring_capacity = 0;
    if (good) {
      // The mapping reaches beyond the end of the file; only what is reserved is ever touched.
      void* const mapping = mmap(nullptr, mapped_bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
      good = mapping != MAP_FAILED && fstat(fd, &status) == 0;
      base = mapping == MAP_FAILED ? nullptr : static_cast<char*>(mapping);
    }
    close(fd);
    if (!good) {
      unmap();
      unlink(path_);
      return false;
    }
    madvise(base, mapped_bytes_, MADV_DONTFORK);
    if (complete)
      populate(plan.ring_offset, kStepSlots * sizeof(Slot));
    device_ = status.st_dev;
    inode_ = status.st_ino;
    header = reinterpret_cast<FileHeader*>(base);
    plan.magic = 0;
    plan.reserved_slots = complete ? kStepSlots : 0;
    std::memcpy(static_cast<void*>(header), &plan, sizeof plan);
    __atomic_store_n(&header->magic, kFileMagic, __ATOMIC_RELEASE);
    return true;
  }

  /// Reserves the next step of the ring. Zero, or why the ring ends here.
  int grow() noexcept {
    const std::uint64_t have = header->reserved_slots;
    const std::uint64_t want =
        have + kStepSlots < header->ring_capacity ? have + kStepSlots : header->ring_capacity;
    // By name, and only if the name still means this file: it may have been moved into RUN
    // meanwhile.
    const int fd = open(path_, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0)
      return errno;
    struct stat status {};
    int error = 0;
    if (fstat(fd, &status) != 0 || status.st_dev != device_ || status.st_ino != inode_)
      error = ENOENT;
    else
      error = reserve(fd, header->ring_offset + have * sizeof(Slot), (want - have) * sizeof(Slot));
    close(fd);
    if (error == 0) {
      populate(header->ring_offset + have * sizeof(Slot), (want - have) * sizeof(Slot));
      __atomic_store_n(&header->reserved_slots, want, __ATOMIC_RELEASE);
    }
    return error;
  }

  void unmap() noexcept {
    if (base != nullptr)
      munmap(base, mapped_bytes_);
    forget();
  }
  /// In a forked child, where the mapping does not exist.
  void forget() noexcept {
    base = nullptr;
    header = nullptr;
  }

  [[nodiscard]] const char* path() const noexcept { return path_; }

  /// Gives [offset, offset + bytes) space. Zero or an errno.
  static int reserve(int fd, std::uint64_t offset, std::uint64_t bytes) noexcept {
    // Beyond this limit the kernel would not refuse but kill (SIGXFSZ).
    rlimit limit{};
    if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY &&
        offset + bytes > limit.rlim_cur)
      return EFBIG;
    int error = 0;
    do {
      error =
          fallocate(fd, 0, static_cast<off_t>(offset), static_cast<off_t>(bytes)) == 0 ? 0 : errno;
    } while (error == EINTR);
    if (error != EOPNOTSUPP && error != ENOSYS)
      return error;
    static const char zeros[1 << 16] = {};
    for (std::uint64_t done = 0; done < bytes;) {
      const std::uint64_t step = bytes - done < sizeof zeros ? bytes - done : sizeof zeros;
      const ssize_t wrote = pwrite(fd, zeros, step, static_cast<off_t>(offset + done));
      if (wrote < 0 && errno == EINTR)
        continue;
      if (wrote <= 0)
        return wrote < 0 ? errno : ENOSPC;
      done += static_cast<std::uint64_t>(wrote);
    }
    return 0;
  }

 private:
  /// `directory/<host>-<pid>-<start ticks>-<n>.lsh`, the first n that is free.
  bool name_file(const char* directory, char* host) noexcept {
    char absolute[PATH_MAX];
    if (directory == nullptr ||
        realpath(directory, absolute) == nullptr)  // The program may change directory.
      return false;
    host_name(host);
    for (int n = 0; n < 10000; ++n) {
      const int length = std::snprintf(path_, sizeof path_, "%s/%s-%d-%llu-%d.lsh", absolute, host,
                                       getpid(), static_cast<unsigned long long>(start_ticks()), n);
      if (length < 0 || static_cast<std::size_t>(length) >= sizeof path_)
        return false;
      if (access(path_, F_OK) != 0)
        return errno == ENOENT;
    }
    return false;
  }

  static void host_name(char* host) noexcept {
    char name[64] = "host";
    gethostname(name, sizeof name - 1);
    name[sizeof name - 1] = 0;
    for (char* c = name; *c != 0; ++c) {
      if (*c == '/' || *c == ' ')
        *c = '_';
    }
    std::memcpy(host, name, sizeof name);
  }

  static std::size_t read_small(const char* path, char* buffer, std::size_t size) noexcept {
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    const ssize_t got = fd < 0 ? -1 : read(fd, buffer, size - 1);
    if (fd >= 0)
      close(fd);
    buffer[got < 0 ? 0 : got] = 0;
    return got < 0 ? 0 : static_cast<std::size_t>(got);
  }

  static std::uint64_t start_ticks() noexcept {
    char text[1024];
    read_small("/proc/self/stat", text, sizeof text);
    const char* field = std::strrchr(text, ')');  // The command may hold spaces and parentheses.
    for (int i = 2; field != nullptr && i < 22; ++i)
      field = std::strchr(field + 1, ' ');
    return field == nullptr ? 0 : std::strtoull(field + 1, nullptr, 10);
  }

  static void fill(FileHeader& plan, const WriterOptions& options) noexcept {
    plan.version = kFormatVersion;
    plan.header_bytes = sizeof(FileHeader);
    const std::uint64_t room =
        options.file_bytes < kFileBytesMin ? kFileBytesMin : options.file_bytes;
    plan.definitions_offset = sizeof(FileHeader);
    plan.definitions_bytes = definitions_bytes(options.file_bytes);
    plan.groups_offset = plan.definitions_offset + plan.definitions_bytes;
    plan.groups_capacity = kGroupsMax;
    plan.digests_offset = plan.groups_offset + plan.groups_capacity * sizeof(GroupEntry);
    plan.digests_capacity = room / 64 / sizeof(DigestEntry);
    plan.pending_offset = plan.digests_offset + plan.digests_capacity * sizeof(DigestEntry);
    plan.pending_capacity = 256;
    plan.ring_offset =
        (plan.pending_offset + plan.pending_capacity * sizeof(Slot) + 4095) / 4096 * 4096;
    const std::uint64_t left =
        plan.ring_offset < room ? (room - plan.ring_offset) / sizeof(Slot) : 0;
    plan.ring_capacity = left < kStepSlots ? kStepSlots : left;
    plan.start_ticks = start_ticks();
    plan.capabilities = options.capabilities;
    plan.pid = getpid();
    plan.parent_pid = getppid();
    plan.rank = options.rank;
    plan.world_size = options.world_size;
    host_name(plan.host);
    if (options.torch_version != nullptr)
      std::strncpy(plan.torch_version, options.torch_version, sizeof plan.torch_version - 1);
    char text[64];
    read_small("/proc/sys/kernel/random/boot_id", text, sizeof text);
    text[std::strcspn(text, "\n")] = 0;
    std::memcpy(plan.boot_id, text, sizeof plan.boot_id - 1);
    struct stat status {};
    if (stat("/proc/self/ns/pid", &status) == 0)
      plan.pid_namespace = status.st_ino;
    plan.monotonic_ns = clock_ns(CLOCK_MONOTONIC);
    plan.wall_ns = clock_ns(CLOCK_REALTIME);
  }

  /// Touches pages now, all at once: one by one they are a fault every 32 records. Kernels before
  /// 5.14 do not know how.
  void populate(std::uint64_t offset, std::uint64_t bytes) noexcept {
    constexpr int kPopulateWrite = 23;  // MADV_POPULATE_WRITE, which glibc before 2.35 lacks.
    const std::uint64_t begin = offset / 4096 * 4096;
    madvise(base + begin, offset + bytes - begin, kPopulateWrite);
  }

  char path_[PATH_MAX] = {};
  std::uint64_t mapped_bytes_ = 0;
  dev_t device_ = 0;
  ino_t inode_ = 0;
};

}  // namespace lockstep::history

#pragma GCC visibility pop
