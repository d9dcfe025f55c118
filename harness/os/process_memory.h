// Memory of another process, read without stopping it.
#pragma once

#include <sys/types.h>
#include <sys/uio.h>

#include <cstddef>
#include <cstdint>

namespace lockstep::os {

/// How much was read, from `address` on; negative: nothing, with errno.
inline ssize_t read_some(std::int32_t pid, std::uint64_t address, void* to, std::size_t bytes) {
  const iovec local{.iov_base = to, .iov_len = bytes};
  const iovec remote{.iov_base = reinterpret_cast<void*>(address), .iov_len = bytes};
  return ::process_vm_readv(pid, &local, 1, &remote, 1, 0);
}

/// All of it, or false.
inline bool read_memory(std::int32_t pid, std::uint64_t address, void* to, std::size_t bytes) {
  return read_some(pid, address, to, bytes) == static_cast<ssize_t>(bytes);
}

}  // namespace lockstep::os
