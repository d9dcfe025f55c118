// The memory of this process, read in three ways; see python/frames.h.
#pragma once

#include <sys/uio.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

#pragma GCC visibility push(hidden)

namespace lockstep::tap {

/// By plain loads.
struct Direct {
  bool read(std::uint64_t address, void* to, std::size_t bytes) const {
    std::memcpy(to, reinterpret_cast<const void*>(address), bytes);
    return true;
  }
};

/// By way of the kernel, where a wrong address is an error and not a crash.
struct Careful {
  bool read(std::uint64_t address, void* to, std::size_t bytes) const {
    const iovec local{to, bytes};
    const iovec remote{reinterpret_cast<void*>(address), bytes};
    return process_vm_readv(getpid(), &local, 1, &remote, 1, 0) == static_cast<ssize_t>(bytes);
  }
};

/// The same, a page at a time: what is read lies close together. What it shows is as old as the
/// first look at its page.
class CarefulPages {
 public:
  bool read(std::uint64_t address, void* to, std::size_t bytes) const {
    auto* out = static_cast<char*>(to);
    while (bytes != 0) {
      const Page& page = pages_[address / kPageBytes % kPages];
      if (page.number != address / kPageBytes && !fill(address / kPageBytes))
        return false;
      const std::size_t offset = address % kPageBytes;
      const std::size_t part = bytes < kPageBytes - offset ? bytes : kPageBytes - offset;
      std::memcpy(out, page.bytes + offset, part);
      address += part;
      out += part;
      bytes -= part;
    }
    return true;
  }

 private:
  static constexpr std::size_t kPageBytes = 4096, kPages = 8;
  struct Page {
    std::uint64_t number{};  // None of ours lies in the first page.
    char bytes[kPageBytes];
  };

  bool fill(std::uint64_t number) const {
    Page& page = pages_[number % kPages];
    page.number = 0;
    if (number == 0 || !Careful{}.read(number * kPageBytes, page.bytes, kPageBytes))
      return false;
    page.number = number;
    return true;
  }

  mutable Page pages_[kPages];
};

}  // namespace lockstep::tap

#pragma GCC visibility pop
